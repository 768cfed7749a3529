// The command line of `dslaunch doctor`.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cli/options.h"
#include "proto/contract/error.h"

namespace dslaunch {

struct DoctorCommand {
  std::string help;      // what to print on stdout instead; else empty
  LaunchOptions launch;  // which nodes, how they are reached, and how many slots they have
  bool trains = false;   // `train` was given: the trainer must run on every node
};

// Whether the first word of a command line is this command.
bool IsDoctorCommand(std::string_view word);

// `words` begins with "doctor"; what follows is launch options, and `train` if that is what is to
// be started. Errors are kUsage, one line with the way out.
Result<DoctorCommand> ParseDoctorCommand(const std::vector<std::string>& words);

}  // namespace dslaunch
