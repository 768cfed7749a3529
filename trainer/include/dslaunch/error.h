// What dslaunch throws at those who use it.
#pragma once

#include <stdexcept>
#include <string>

namespace dslaunch {

// Of a program that ends because of an error; docs/troubleshooting.md has them all.
enum class ExitCode : int;

// `what()` is one sentence for a user: what, where (file, key) and the way out.
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
