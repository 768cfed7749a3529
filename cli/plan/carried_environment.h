// The choice of the front end's environment variables that ranks on other nodes get. Pure.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace dslaunch {

inline constexpr char kPythonPath[] = "PYTHONPATH";

struct CarriedEnvironment {
  std::vector<std::pair<std::string, std::string>> variables;  // in the order of the environment
  // Names of the user's own variables that nodes do not get: all that are not carried, except those
  // of the session and machine (PATH, TERM, SSH_* ...). Sorted.
  std::vector<std::string> left_out;
};

// Divides `environment` (NAME=VALUE) by name. Carries variables that DeepSpeed exports and those
// that frameworks, their libraries and MPI read (OMP_NUM_THREADS, TORCH_*, HF_* ...), tokens
// included. Never carries a rank's place in a job, nor PYTHONPATH, which JobProgram sets.
CarriedEnvironment Carry(const std::vector<std::string>& environment);

// Returns "this shell's A, B and 2 more are not passed to the nodes; -x NAME passes one", or an
// empty string if there are no names.
std::string LeftOutNotice(const std::vector<std::string>& names);

}  // namespace dslaunch
