// The exception of the public API.
#pragma once

#include <stdexcept>
#include <string>

namespace dslaunch {

// The exit code of a program that ends with an error; docs/troubleshooting.md lists them.
enum class ExitCode : int;

// An error for the user. `what()` is one sentence: what is wrong, where (file, key), and a hint.
class TrainError : public std::runtime_error {
 public:
  TrainError(ExitCode code, const std::string& message)
      : std::runtime_error(message), code_(code) {}
  ExitCode code() const { return code_; }
  int exit_code() const { return static_cast<int>(code_); }  // for main() to return

 private:
  ExitCode code_;
};

}  // namespace dslaunch
