// Implements `dslaunch tune`: prepares the search, runs it, prints the result and writes the
// recipe.
#pragma once

#include "base/error.h"
#include "cli/options/options.h"
#include "cli/output/terminal.h"

namespace dslaunch {

// Runs the search and returns the exit code. With TuneOptions::then_train, if a configuration was
// found, replaces this process by a training with it, and returns only if that fails.
Result<int> TuneMain(const LaunchOptions& options, Terminal& terminal);

}  // namespace dslaunch
