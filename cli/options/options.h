// The command line: dslaunch [launch options] train [RECIPE] [trainer options]
//                   dslaunch [launch options] predict [RECIPE] [prediction options]
//                   dslaunch [launch options] PROGRAM [args...]
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

// What besides the command line may hold options.
struct ParseContext {
  const char* const* environment = nullptr;  // as environ: NAME=VALUE, up to a null; null: none
  std::string folder;  // absolute; where ./dslaunch.yaml would be; empty: it is not looked for
  // Whether this machine's PATH has a program of that name; empty: not known. A word that is near
  // a command's name is taken for a mistyped command only where it has none.
  std::function<bool(const std::string&)> has_program = {};
};

// Parses the command line. Launch options end at the first argument that is no option (or after
// `--`); what follows a PROGRAM belongs to it byte for byte. Option names may be spelt with '-' or
// '_', and those of deepspeed and torchrun may be cut short where that leaves one; of an option
// given twice the last counts, but for --set and --env.
// Where the command line says nothing the run file does (cli/options/launch_file.h), and where that
// says nothing PET_NAME does, for the options for which torchrun reads it. Every error is one line
// that names the argument, variable, or file:line, and a hint: kUsage, or kBadInput for what
// is wrong in a file.
Result<LaunchOptions> ParseOptions(int argc, const char* const* argv,
                                   const ParseContext& context = {});

}  // namespace dslaunch
