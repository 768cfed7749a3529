// How the ranks of Spawn ended, and which of them is the cause.
#pragma once

#include <string>
#include <vector>

#include "dslaunch/error.h"

namespace dslaunch {

struct RankEnd {
  int rank = 0;
  int wait_status = 0;   // as waitpid gives it
  bool stopped = false;  // by us, because another one had failed
  bool victim = false;   // its error says that another rank failed
  bool came = true;      // false: the program was started anew and ended before its Spawn call
};

bool Failed(const RankEnd& end);

// What is thrown for `ends`, of which at least one has failed, in the order they were seen. A rank
// that was stopped, or that only lost another one or waited for it, is not named while one with a
// cause of its own is there.
TrainError SpawnError(const std::vector<RankEnd>& ends);

}  // namespace dslaunch
