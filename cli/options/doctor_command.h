// Parses the command line of `dslaunch doctor`.
#pragma once

#include <string>
#include <vector>

#include "base/error.h"
#include "cli/options/options.h"

namespace dslaunch {

struct DoctorCommand {
  std::string help;  // text to print on stdout instead of running doctor; empty to run it
  // Launch options, which determine the nodes, their slots and how to reach them.
  LaunchOptions launch;
  // True if `train`, `predict`, `bench` or a run file with a recipe was given, so that the trainer
  // must run on the nodes.
  bool trains = false;
  bool has_program = false;  // true if launch.program is the program that a job would run
};

// Parses the command line. `words` begins with "doctor", followed by launch options and,
// optionally, `train` or a program with its arguments. Returns the errors of ParseOptions.
Result<DoctorCommand> ParseDoctorCommand(const std::vector<std::string>& words,
                                         const ParseContext& context = {});

}  // namespace dslaunch
