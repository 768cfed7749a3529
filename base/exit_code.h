// The exit codes of every dslaunch binary: part of the contract with users' scripts.
#pragma once

namespace dslaunch {

// A failed worker's own code, or 128 + signal, is passed on as it is; these are dslaunch's own.
enum class ExitCode : int {
  kOk = 0,               // every rank of the final attempt ended 0 and teardown completed
  kUsage = 64,           // the command line
  kBadInput = 65,        // a file: hostfile, recipe, data, checkpoint
  kUnavailable = 69,     // a node cannot be reached or was lost
  kInternal = 70,        // a bug in dslaunch
  kIo = 74,              // disk full, permission denied
  kTimedOut = 75,        // a barrier or a connection ran out of time
  kNoPermission = 77,    // SSH host key or login refused
  kPreempted = 85,       // stopped early on request, after a checkpoint; start again to go on
  kCannotExecute = 126,  // a program that is not executable, as shells say it
  kNotFound = 127,       // a program that does not exist, as shells say it
  kInterrupted = 130,    // Ctrl-C
};

constexpr int ToInt(ExitCode code) { return static_cast<int>(code); }

// `code`, which another process reported for a failure, if a process can end with it and it is not
// success; else `instead`.
constexpr int FailureCode(int code, ExitCode instead) {
  return code >= 1 && code <= 255 ? code : ToInt(instead);
}

// What shells and dslaunch report for a process that a signal ended.
constexpr int ExitCodeForSignal(int signal_number) { return 128 + signal_number; }

}  // namespace dslaunch
