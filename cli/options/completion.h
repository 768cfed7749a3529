// `dslaunch completion`: what a shell needs to complete command lines, and the man page. All of it
// comes from the option table. Pure.
#pragma once

#include <string>
#include <vector>

#include "base/error.h"

namespace dslaunch {

// What `dslaunch completion ...` prints; `words` begins with "completion". The shells' scripts call
// `dslaunch completion complete -- WORD...` at each TAB, with the words after the command's name
// up to the one that is being typed; see Complete. Errors are kUsage.
Result<std::string> CompletionText(const std::vector<std::string>& words);

// What may stand in place of the last of `words`.
struct Completion {
  struct Word {
    std::string text;
    std::string help;
  };
  std::vector<Word> words;  // all begin with what is typed
  enum class Paths { kNone, kFiles, kFolders };
  Paths paths = Paths::kNone;  // which may too
};
Completion Complete(const std::vector<std::string>& words);

}  // namespace dslaunch
