// Implements `dslaunch completion`: shell completion of command lines, and the man page. Both are
// made from the option table and from CompletionSources. All functions are pure.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/error.h"

namespace dslaunch {

// The candidates for the last word of a command line.
struct Completion {
  struct Word {
    std::string text;
    std::string help;
  };
  std::vector<Word> words;  // candidate words; each begins with the typed text
  enum class Paths { kNone, kFiles, kFolders };
  Paths paths = Paths::kNone;  // whether paths are candidates too, and of which kind
};

// Functions that return candidates that are not in the option table. Each function is called only
// where its words are allowed; an empty function offers no words.
struct CompletionSources {
  using Words = std::function<std::vector<Completion::Word>()>;
  Words jobs = {};         // ids of jobs, the newest job first
  Words recipes = {};      // names of the built-in recipes
  Words recipe_keys = {};  // keys of recipes, such as "run.steps"
};

// Returns the candidates for the last of `words`, which is being typed and may be empty. `words`
// follow the command's name, `dslaunch`; no words count as one empty word.
Completion Complete(const std::vector<std::string>& words, const CompletionSources& sources = {});

// Returns the output of `dslaunch completion ...`; `words` begins with "completion". The shells'
// scripts call `dslaunch completion complete -- WORD...` at each TAB. WORD... are the words after
// the command's name, up to the word that is being typed. Errors are kUsage.
Result<std::string> CompletionText(const std::vector<std::string>& words,
                                   const CompletionSources& sources = {});

}  // namespace dslaunch
