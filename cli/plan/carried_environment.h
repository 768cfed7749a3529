// Chooses the environment variables of the front end that ranks on other nodes get. All functions
// are pure.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace dslaunch {

inline constexpr char kPythonPath[] = "PYTHONPATH";

struct CarriedEnvironment {
  // Names and values of the carried variables, in the order of the environment.
  std::vector<std::pair<std::string, std::string>> variables;
  // Names of the user's own variables that nodes do not get: all that are not carried, except
  // variables of the session and machine (PATH, TERM, SSH_* ...). Sorted.
  std::vector<std::string> left_out;
};

// Divides `environment` (NAME=VALUE strings) by name. Carries the variables that DeepSpeed exports,
// and the variables that frameworks, their libraries and MPI read (OMP_NUM_THREADS, TORCH_*, HF_*
// ...), including tokens. Never carries variables that describe a rank's position in a job, such as
// RANK, nor PYTHONPATH, which JobProgram sets.
CarriedEnvironment Carry(const std::vector<std::string>& environment);

// Returns a notice such as "this shell's A, B and 2 more are not passed to the nodes; -x NAME
// passes one"; empty if `names` is empty.
std::string LeftOutNotice(const std::vector<std::string>& names);

}  // namespace dslaunch
