// Which of the front end's environment variables ranks on other nodes get. Pure.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace dslaunch {

inline constexpr char kPythonPath[] = "PYTHONPATH";

struct CarriedEnvironment {
  std::vector<std::pair<std::string, std::string>> variables;  // in the order of the environment
  // Names of the user's own variables that nodes do not get: neither carried nor of the session or
  // machine (PATH, TERM, SSH_* ...). In order of the alphabet.
  std::vector<std::string> left_out;
};

// Splits `environment` (NAME=VALUE) by name. Carried are variables that DeepSpeed exports and
// those that frameworks, their libraries and MPI read (OMP_NUM_THREADS, TORCH_*, HF_* ...), with
// the tokens among them; never a rank's place in a job, and not PYTHONPATH, which is made anew.
CarriedEnvironment Carry(const std::vector<std::string>& environment);

// "this shell's A, B and 2 more are not passed to the nodes; -x NAME passes one". Empty without
// names.
std::string LeftOutNotice(const std::vector<std::string>& names);

}  // namespace dslaunch
