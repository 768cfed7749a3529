// Running a program only to hear what it says.
#pragma once

#include <string>
#include <vector>

#include "base/deadline.h"

namespace dslaunch {

struct BriefRun {
  enum class End { kNotStarted, kExited, kSignalled, kTimedOut };
  End end = End::kNotStarted;
  int number = 0;      // errno, exit code or signal, as `end` is
  std::string output;  // stdout and stderr, the first 4 KiB
};

// Runs argv[0], an absolute path, with `environment` (NAME=VALUE), and waits for its end until
// `deadline`, when it and what it has started in its process group are killed. It is killed too
// when the calling thread ends. It gains no rights by setuid files.
BriefRun RunBriefly(const std::vector<std::string>& argv,
                    const std::vector<std::string>& environment, Deadline deadline);

}  // namespace dslaunch
