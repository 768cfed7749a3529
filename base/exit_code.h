// Defines the exit codes of every dslaunch binary, which users' scripts may rely on.
#pragma once

namespace dslaunch {

// The exit codes of dslaunch itself. A failed worker's own exit code, or 128 + its signal, is
// passed on unchanged instead.
enum class ExitCode : int {
  kOk = 0,               // every rank of the final attempt exited with 0 and teardown completed
  kUsage = 64,           // invalid command line
  kBadInput = 65,        // invalid file, such as a hostfile, recipe, data set or checkpoint
  kUnavailable = 69,     // a node is unreachable or was lost
  kInternal = 70,        // a bug in dslaunch
  kIo = 74,              // disk full or permission denied
  kTimedOut = 75,        // a barrier or a connection timed out
  kNoPermission = 77,    // SSH host key or login refused
  kPreempted = 85,       // stopped early on request, after a checkpoint; a new start resumes
  kCannotExecute = 126,  // the program is not executable, as in shells
  kNotFound = 127,       // the program does not exist, as in shells
  kInterrupted = 130,    // interrupted by Ctrl-C
};

constexpr int ToInt(ExitCode code) { return static_cast<int>(code); }

// Returns `code`, which another process reported for a failure, if it is a valid exit code other
// than 0; otherwise returns `instead`.
constexpr int FailureCode(int code, ExitCode instead) {
  return code >= 1 && code <= 255 ? code : ToInt(instead);
}

// Returns the exit code that shells and dslaunch report for a process that a signal ended.
constexpr int ExitCodeForSignal(int signal_number) { return 128 + signal_number; }

}  // namespace dslaunch
