// `dslaunch completion`: shell completion of command lines, and the man page. Both are made from
// the option table and from CompletionSources. Pure.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/error.h"

namespace dslaunch {

// The candidates for the last word.
struct Completion {
  struct Word {
    std::string text;
    std::string help;
  };
  std::vector<Word> words;  // each begins with the typed text
  enum class Paths { kNone, kFiles, kFolders };
  Paths paths = Paths::kNone;  // whether paths are candidates too
};

// Candidates that are not in the option table. Each function is called only where its words are
// allowed; empty functions offer nothing.
struct CompletionSources {
  using Words = std::function<std::vector<Completion::Word>()>;
  Words jobs = {};         // ids of jobs, the newest first
  Words recipes = {};      // names of the built-in recipes
  Words recipe_keys = {};  // keys such as "run.steps"
};

Completion Complete(const std::vector<std::string>& words, const CompletionSources& sources = {});

// Returns the output of `dslaunch completion ...`; `words` begins with "completion". The shells'
// scripts call `dslaunch completion complete -- WORD...` at each TAB, with the words after the
// command's name up to the word being typed; see Complete. Errors are kUsage.
Result<std::string> CompletionText(const std::vector<std::string>& words,
                                   const CompletionSources& sources = {});

}  // namespace dslaunch
