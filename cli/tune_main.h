// `dslaunch tune`: prepares the search, runs it, prints what it found and writes the recipe.
#pragma once

#include "base/error.h"
#include "cli/options/options.h"
#include "cli/output/terminal.h"

namespace dslaunch {

// Returns the exit code. With TuneOptions::then_train, and a configuration found, replaces this
// process by a training with it, and returns only if that fails.
Result<int> TuneMain(const LaunchOptions& options, Terminal& terminal);

}  // namespace dslaunch
