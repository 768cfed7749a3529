// Parses the command line, which has one of these forms:
//   dslaunch [launch options] train [RECIPE] [trainer options]
//   dslaunch [launch options] predict [RECIPE] [prediction options]
//   dslaunch [launch options] PROGRAM [args...]
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "cli/request/launch_options.h"

namespace dslaunch {

// The sources of options besides the command line.
struct ParseContext {
  // NAME=VALUE strings up to a null pointer, as environ; null for an empty environment.
  const char* const* environment = nullptr;
  // Absolute path of the folder that may contain ./dslaunch.yaml; empty to ignore that file.
  std::string folder;
  // Returns whether PATH contains a program with the given name; may be empty. A word similar to a
  // command's name is treated as a mistyped command only if this returns false.
  std::function<bool(const std::string&)> has_program = {};
};

// Parses the command line. Launch options end at the first word that is not an option, or after
// `--`; the arguments after PROGRAM are passed to it unchanged. Names of options may be spelt with
// '-' or '_', and names from deepspeed and torchrun may be abbreviated to an unambiguous prefix. If
// an option is given several times, the last value counts, except for --set and --env.
//
// The command line takes precedence over the run file (cli/options/launch_file.h). The run file
// takes precedence over PET_NAME variables, which supply the options that torchrun reads from them.
// Every error is one line that names the argument, variable, or file:line, and gives a hint. Errors
// are kUsage, or kBadInput for an error in a file.
Result<LaunchOptions> ParseOptions(int argc, const char* const* argv,
                                   const ParseContext& context = {});

}  // namespace dslaunch
