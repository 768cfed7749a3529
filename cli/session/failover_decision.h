// Decides which node hosts the rendezvous after the node that hosts it is lost. Pure: the input is
// the front end's view of the nodes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/deadline.h"
#include "proto/agent.pb.h"

namespace dslaunch {

// The front end's view of one node.
struct FailoverView {
  bool connected = false;        // what it says comes through to us, or may again
  bool awaits_failover = false;  // it has lost its rendezvous
  bool was_idle = false;         // and had no ranks when it did
  bool spare = false;
  bool is_part = false;  // has ranks, or may get some
  bool silent = false;   // for so long that it counts as lost
};

// A node that has been silent for so long has surely ended its ranks: its lease, which is renewed
// until it counts as lost, is over, what an agent that stood still may add to it too, and so is all
// that follows from its end.
milliseconds GoneAfter(const pb::Timeouts& timeouts);

// Who hosts the next rendezvous, once `lost_host` is surely gone: a node that waits for it, rather
// no spare. nullopt: nobody does, or not all that can still be heard have noticed the loss; one of
// them would go on in the old attempt.
std::optional<size_t> DecideFailover(const std::vector<FailoverView>& nodes, size_t lost_host);

struct FailoverInfo {
  pb::RendezvousLost lost;  // the word of the newest attempt
  uint64_t attempt = 0;     // the newest that was seen to start, or that a failover was to begin
  uint32_t restarts = 0;    // used up
  uint32_t max_restarts = 0;
  size_t min_nodes = 1;
  std::vector<FailoverView> nodes;
};

// The new rendezvous gives no attempt's number a second time. The lost one may have begun attempts
// of which nobody here has heard: with nodes that do not wait for another, and with idle ones, to
// which its word did not come. As many numbers are left out as those may be; where all these nodes
// are too few to go on there are none.
pb::FailoverRequest MakeFailoverRequest(size_t host, const FailoverInfo& info);

}  // namespace dslaunch
