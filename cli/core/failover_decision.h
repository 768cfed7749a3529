// Decides which node hosts the rendezvous after its host is lost. The decision depends only on the
// front end's view of the nodes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/deadline.h"
#include "proto/agent.pb.h"

namespace dslaunch {

struct FailoverView {
  bool connected = false;        // true if messages of the node arrive, or may arrive again
  bool awaits_failover = false;  // true if the node has lost its rendezvous
  bool was_idle = false;         // true if the node had no ranks when it lost its rendezvous
  bool will_join = false;        // true if the node is reached again and joins the next rendezvous
  bool spare = false;
  bool is_part = false;  // true if the node has ranks or may get ranks
  bool silent = false;   // true if the node has been silent for so long that it counts as lost
};

// Returns the time after a node's last heartbeat by which the node has certainly ended its ranks.
// The time covers the lease, which is renewed until the node counts as lost, the time that a
// stopped agent may add to the lease, and the teardown that follows.
milliseconds GoneAfter(const pb::Timeouts& timeouts);

// Returns the host of the next rendezvous, which is a node that waits for a failover. Prefers
// regular nodes to spares, and any other node to `lost_host`. Returns nullopt if no node waits, or
// if a connected node has not noticed the loss and would continue the old attempt. Precondition:
// `lost_host` has certainly ended or has given up the rendezvous.
std::optional<size_t> DecideFailover(const std::vector<FailoverView>& nodes, size_t lost_host);

// Returns whether `host` must end although it sends heartbeats, because several other nodes have
// lost its rendezvous and none continues with it. A single such node is not enough, because that
// node may be cut off itself.
bool IsHostCutOff(const std::vector<FailoverView>& nodes, size_t host);

struct FailoverInfo {
  size_t lost_host = 0;
  pb::RendezvousLost lost;  // loss that was reported with the newest attempt
  uint64_t attempt = 0;     // newest attempt that started, or that a failover was to begin
  uint32_t restarts = 0;    // number of restarts used so far
  uint32_t max_restarts = 0;
  size_t min_nodes = 1;
  std::vector<FailoverView> nodes;
};

// Returns the request that opens the new rendezvous on `host`. Its attempt number exceeds every
// number that the lost rendezvous may have used. The lost rendezvous may have begun attempts that
// no waiting node has reported, because their nodes do not wait or were idle. The numbers of these
// possible attempts are skipped (UnseenAttempts()).
pb::FailoverRequest MakeFailoverRequest(size_t host, const FailoverInfo& info);

}  // namespace dslaunch
