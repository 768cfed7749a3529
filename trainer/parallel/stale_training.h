// Controls a run whose servers update parameters as gradients arrive (parallel.staleness).
#pragma once

#include <cstdint>
#include <vector>

#include "dslaunch/process_group.h"

namespace dslaunch {

// Controls this rank's part of a run with stale gradients. Used by one thread. Between two calls of
// Meet the ranks do not wait for each other, except that a rank is at most `staleness` steps ahead
// of the slowest rank. If a rank that is not a server is lost, the others continue. The loss of a
// server ends the run on every rank by an exception.
class StaleTraining {
 public:
  virtual ~StaleTraining() = default;

  virtual bool is_server() const = 0;
  // Returns the group for this rank's collectives: all servers if this rank is a server, otherwise
  // only this rank.
  virtual ProcessGroup& group() = 0;

  // Only servers call HoldAfter, Meet and Pause, and all servers call them in the same order.

  // Prevents all ranks from beginning a step after `step` until the next call. No rank begins a
  // step before the first call, and servers make no step between Meet and HoldAfter.
  virtual void HoldAfter(int64_t step) = 0;
  // Waits until every rank that is not lost has completed `step`. Then copies the current
  // parameters, and rank 0's buffers, to the models of all servers. Precondition: HoldAfter(step).
  virtual void Meet(int64_t step) = 0;
  // Lets ranks complete their current steps, but begin no new steps. Then waits and copies like
  // Meet.
  virtual void Pause() = 0;

  // Ends training on this rank. A server also notifies the other ranks that there are no more
  // steps, waits until they have disconnected, and returns the ranks that were lost.
  virtual std::vector<int> Leave() = 0;

  // Reports that an exception ends this rank, whose own message states the reason. If this rank is
  // not a server, rank 0 then does not report it as lost.
  virtual void Fail() = 0;
};

}  // namespace dslaunch
