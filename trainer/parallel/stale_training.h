// Control of a run whose servers update as gradients arrive (parallel.staleness).
#pragma once

#include <cstdint>
#include <vector>

#include "dslaunch/process_group.h"

namespace dslaunch {

// One for each rank. One thread. Between two meetings ranks do not wait for each other, except that
// each is at most `staleness` steps ahead of the slowest. If a rank that is not a server is lost,
// the others continue. The loss of a server ends the run on every rank, by an exception.
class StaleTraining {
 public:
  virtual ~StaleTraining() = default;

  virtual bool is_server() const = 0;
  // The group for this rank's collectives from now on: all servers for a server, only itself for
  // another rank.
  virtual ProcessGroup& group() = 0;

  // The following three functions are called by servers only, and by all servers in the same order.

  // Until the next call no rank begins a step after `step`. No rank begins a step before the first
  // call, and servers make no step between Meet and this.
  virtual void HoldAfter(int64_t step) = 0;
  // Precondition: HoldAfter(step). Waits until every rank that is not lost has completed `step`.
  // Then copies the current parameters, and rank 0's buffers, to the models of all servers.
  virtual void Meet(int64_t step) = 0;
  // Lets ranks complete the steps that they are in, and begin no other. Then does what Meet does.
  virtual void Pause() = 0;

  // Ends training on this rank. A server also tells the other ranks that there are no more steps,
  // waits until they have left, and returns those that were lost.
  virtual std::vector<int> Leave() = 0;

  // Called when an exception ends this rank. If it is not a server, rank 0 then does not report it
  // as lost, because its own message has the reason.
  virtual void Fail() = 0;
};

}  // namespace dslaunch
