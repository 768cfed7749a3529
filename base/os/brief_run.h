// Runs a program to completion and returns its output.
#pragma once

#include <string>
#include <vector>

#include "base/deadline.h"

namespace dslaunch {

// The result of RunBriefly().
struct BriefRun {
  enum class End { kNotStarted, kExited, kSignalled, kTimedOut };
  End end = End::kNotStarted;
  int number = 0;      // errno if kNotStarted, exit code if kExited, signal if kSignalled, else 0
  std::string output;  // first 4 KiB of stdout and stderr together
};

// Runs argv[0], an absolute path, with `environment` (NAME=VALUE) and waits for its exit. Kills the
// program and its process group at `deadline`, or when the calling thread ends. The program gains
// no privileges from setuid files.
BriefRun RunBriefly(const std::vector<std::string>& argv,
                    const std::vector<std::string>& environment, Deadline deadline);

}  // namespace dslaunch
