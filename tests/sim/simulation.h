// One history of a job: the whole control plane on a virtual clock and network, from one seed.
#pragma once

#include <cstdint>
#include <string>

#include "tests/sim/planted_bug.h"
#include "tests/sim/trace.h"

namespace dslaunch::sim {

struct History {
  std::string error;  // the invariant that did not hold; empty: all did
  std::string trace;  // its last lines, if they were kept
  bool succeeded = false;
  bool restarted = false;
  bool failed_over = false;  // another node hosted the rendezvous
  bool elected = false;      // the nodes elected a host
  bool detached = false;
  bool lost_front_end = false;
  bool joined_late = false;  // some command did, after the start
  int64_t virtual_ms = 0;
};

// Runs the history of a seed, the same each time, traced or not.
History RunHistory(uint64_t seed, PlantedBug bug, Tracing tracing);
// Runs one of a job that is detached once it runs.
History RunDetachedHistory(uint64_t seed, PlantedBug bug, Tracing tracing);
// Runs one of a job of one command on each node.
History RunPerNodeHistory(uint64_t seed, PlantedBug bug, Tracing tracing);
// Jobs whose node with the rendezvous is cut off in one direction (DrawHalfCutJob).
History RunHalfCutHistory(uint64_t seed, PlantedBug bug, Tracing tracing);
History RunDetachedHalfCutHistory(uint64_t seed, PlantedBug bug, Tracing tracing);

}  // namespace dslaunch::sim
