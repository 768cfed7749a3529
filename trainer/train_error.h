// The trainer's own exception: thrown anywhere, caught once, in main.
#pragma once

#include <stdexcept>
#include <string>

#include "proto/contract/exit_code.h"

namespace dslaunch {

// `what()` is one sentence for a user: what, where (file, key) and the way out.
class TrainError : public std::runtime_error {
 public:
  TrainError(ExitCode code, const std::string& message)
      : std::runtime_error(message), code_(code) {}
  ExitCode code() const { return code_; }

 private:
  ExitCode code_;
};

}  // namespace dslaunch
