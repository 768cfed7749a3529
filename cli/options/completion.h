// `dslaunch completion`: what a shell needs to complete command lines, and the man page. It comes
// from the option table, and from what CompletionSources say. Pure.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/error.h"

namespace dslaunch {

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

// What is not in the option table; each is called only where its words may stand. Empty: none.
struct CompletionSources {
  using Words = std::function<std::vector<Completion::Word>()>;
  Words jobs = {};         // ids, the newest first
  Words recipes = {};      // built-in ones, by name
  Words recipe_keys = {};  // "run.steps"
};

Completion Complete(const std::vector<std::string>& words, const CompletionSources& sources = {});

// What `dslaunch completion ...` prints; `words` begins with "completion". The shells' scripts call
// `dslaunch completion complete -- WORD...` at each TAB, with the words after the command's name
// up to the one that is being typed; see Complete. Errors are kUsage.
Result<std::string> CompletionText(const std::vector<std::string>& words,
                                   const CompletionSources& sources = {});

}  // namespace dslaunch
