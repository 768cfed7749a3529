// Declares the exception that the public API throws.
#pragma once

#include <stdexcept>
#include <string>

namespace dslaunch {

// The exit code of a program that ends with an error. docs/troubleshooting.md lists the codes.
enum class ExitCode : int;

// An error for the user. `what()` is one sentence: what is wrong, where (file, key), and a hint.
class TrainError : public std::runtime_error {
 public:
  TrainError(ExitCode code, const std::string& message)
      : std::runtime_error(message), code_(code) {}
  ExitCode code() const { return code_; }
  int exit_code() const { return static_cast<int>(code_); }  // returns the exit status for main()

 private:
  ExitCode code_;
};

// Returns the exception in flight as a TrainError with one line of text, without LibTorch's
// backtrace. Call it in a catch block. A TrainError keeps its code. For any other exception the
// code is kUnavailable or kTimedOut if communication failed because another rank was lost or did
// not answer in time, which the text explains; otherwise it is 1.
TrainError ExplainException();

}  // namespace dslaunch
