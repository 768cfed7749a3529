// The command line of `dslaunch doctor`.
#pragma once

#include <string>
#include <vector>

#include "base/error.h"
#include "cli/options/options.h"

namespace dslaunch {

struct DoctorCommand {
  std::string help;      // what to print on stdout instead; else empty
  LaunchOptions launch;  // which nodes, how they are reached, and how many slots they have
  // `train`, `predict` or `bench` was given, or a run file's recipe: the trainer must run there.
  bool trains = false;
  bool has_program = false;  // launch.program is what a job would run
};

// `words` begins with "doctor"; what follows is launch options, and `train` or a program with its
// arguments if that is what is to be started. Errors are as ParseOptions has them.
Result<DoctorCommand> ParseDoctorCommand(const std::vector<std::string>& words,
                                         const ParseContext& context = {});

}  // namespace dslaunch
