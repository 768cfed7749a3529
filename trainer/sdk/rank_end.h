// Describes how the ranks of a Spawn call ended, and determines which of them caused a failure.
#pragma once

#include <string>
#include <vector>

#include "dslaunch/error.h"

namespace dslaunch {

struct RankEnd {
  int rank = 0;
  int wait_status = 0;   // status that waitpid returned for the rank's process
  bool stopped = false;  // true if Spawn stopped the rank because another rank had failed
  bool victim = false;   // true if the rank's error reports that another rank failed

  // False if the program was started again and ended before it called Spawn.
  bool reached_spawn = true;
};

bool Failed(const RankEnd& end);

// Returns the error to throw for `ends`, which are in the order in which they were observed. A rank
// that was stopped, or that lost or waited for another rank, is named only if no rank has another
// cause of failure. Precondition: at least one rank has failed.
TrainError SpawnError(const std::vector<RankEnd>& ends);

}  // namespace dslaunch
