// Runs one history of a job: the whole control plane on a virtual clock and network, from one seed.
#pragma once

#include <cstdint>
#include <string>

#include "tests/sim/planted_bug.h"
#include "tests/sim/trace.h"

namespace dslaunch::sim {

struct History {
  std::string error;  // first violated invariant; empty if all held
  std::string trace;  // last lines of the trace, if they were kept
  bool succeeded = false;
  bool restarted = false;
  bool failed_over = false;  // whether another node took over the rendezvous
  bool elected = false;      // whether the nodes elected a host
  bool detached = false;
  bool lost_front_end = false;
  bool joined_late = false;  // whether some command joined after the start
  int64_t virtual_ms = 0;
};

// Runs the history of a seed. The history is the same each time, whatever `tracing` is.
History RunHistory(uint64_t seed, PlantedBug bug, Tracing tracing);
// Runs the history of a job that is detached once it runs.
History RunDetachedHistory(uint64_t seed, PlantedBug bug, Tracing tracing);
// Runs the history of a job of one command on each node.
History RunPerNodeHistory(uint64_t seed, PlantedBug bug, Tracing tracing);
// Runs the history of a job whose node with the rendezvous is cut off in one direction
// (DrawHalfCutJob).
History RunHalfCutHistory(uint64_t seed, PlantedBug bug, Tracing tracing);
// Runs the history of such a job that is also detached once it runs.
History RunDetachedHalfCutHistory(uint64_t seed, PlantedBug bug, Tracing tracing);

}  // namespace dslaunch::sim
