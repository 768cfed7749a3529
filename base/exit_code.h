// Defines the exit codes of every dslaunch binary, on which users' scripts may rely.
#pragma once

namespace dslaunch {

// The exit codes of dslaunch itself. If a worker fails, dslaunch exits with the worker's own exit
// code, or 128 + its signal.
enum class ExitCode : int {
  kOk = 0,               // every rank of the last attempt exited with 0, and teardown completed
  kUsage = 64,           // invalid command line
  kBadInput = 65,        // invalid file, such as a hostfile, recipe, data set or checkpoint
  kUnavailable = 69,     // a node is unreachable or was lost
  kInternal = 70,        // bug in dslaunch
  kIo = 74,              // I/O error, such as a full disk or a denied permission
  kTimedOut = 75,        // a barrier or a connection timed out
  kNoPermission = 77,    // SSH refused the host key or the login
  kPreempted = 85,       // stopped early on request, after a checkpoint; a new start resumes
  kCannotExecute = 126,  // program that is not executable, as in shells
  kNotFound = 127,       // program that does not exist, as in shells
  kInterrupted = 130,    // job that Ctrl-C interrupted
};

constexpr int ToInt(ExitCode code) { return static_cast<int>(code); }

// Returns the exit code of a failure that another process reported as `code`. Returns `instead` if
// `code` is 0 or not a valid exit code.
constexpr int FailureCode(int code, ExitCode instead) {
  return code >= 1 && code <= 255 ? code : ToInt(instead);
}

// Returns the exit code for a process that a signal ended, as in shells.
constexpr int ExitCodeForSignal(int signal_number) { return 128 + signal_number; }

}  // namespace dslaunch
