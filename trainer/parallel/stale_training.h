// What a run says to ranks whose servers update as gradients come (parallel.staleness).
#pragma once

#include <cstdint>
#include <vector>

#include "dslaunch/process_group.h"

namespace dslaunch {

// One per rank. One thread. Between two meetings ranks go their own ways, each at most as many
// steps ahead of the slowest as the configuration says. Where a rank that is no server is lost, the
// others go on. The loss of a server ends the run on every rank, by an exception.
class StaleTraining {
 public:
  virtual ~StaleTraining() = default;

  virtual bool is_server() const = 0;
  // The ranks with which this one makes collectives from now on: of a server all servers, of
  // another rank itself alone.
  virtual ProcessGroup& group() = 0;

  // The following three are for servers, which all call them in the same order.

  // No rank begins a step after `step`, until this is called again. No rank begins one before it
  // is called first, and servers make no step between Meet and this.
  virtual void HoldAfter(int64_t step) = 0;
  // Precondition: HoldAfter(step). Waits until every rank that is not lost has made `step`. Then
  // gives the models of the servers the parameters as they are, and rank 0's buffers.
  virtual void Meet(int64_t step) = 0;
  // Lets ranks end the steps that they are in, and begin no other. Then as Meet.
  virtual void Pause() = 0;

  // This rank makes no more steps. A server also tells the others that there are none, waits for
  // them to leave, and returns those that were lost.
  virtual std::vector<int> Leave() = 0;

  // An exception ends this rank. Where it is no server, rank 0 does not say that it was lost: its
  // own message says why it ends.
  virtual void Fail() = 0;
};

}  // namespace dslaunch
