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
  bool connected = false;        // messages of the node arrive, or may arrive again
  bool awaits_failover = false;  // the node has lost its rendezvous
  bool was_idle = false;         // the node had no ranks when it lost its rendezvous
  bool will_join = false;        // the node is reached again and joins the next rendezvous
  bool spare = false;
  bool is_part = false;  // has ranks, or may get some
  bool silent = false;   // the node was silent until it counted as lost
};

// A node that has sent no heartbeat for so long has surely ended its ranks: its lease, which is
// renewed until the node counts as lost, has run out, with what a stopped agent may add to it and
// with the teardown that follows.
milliseconds GoneAfter(const pb::Timeouts& timeouts);

// Returns the host of the next rendezvous, once `lost_host` is surely gone or has given it up: a
// node that waits for it, a spare only if no other waits, and `lost_host` only if none waits.
// nullopt: no node waits, or a connected node has not noticed the loss and would continue the old
// attempt.
std::optional<size_t> DecideFailover(const std::vector<FailoverView>& nodes, size_t lost_host);

// Returns whether `host`, although it sends heartbeats, is to end: several other nodes have lost
// its rendezvous, and none continues with it. A single other node may be cut off itself.
bool IsHostCutOff(const std::vector<FailoverView>& nodes, size_t host);

struct FailoverInfo {
  size_t lost_host = 0;
  pb::RendezvousLost lost;  // the report of the newest attempt
  uint64_t attempt = 0;     // the newest that was seen to start, or that a failover was to begin
  uint32_t restarts = 0;    // used up
  uint32_t max_restarts = 0;
  size_t min_nodes = 1;
  std::vector<FailoverView> nodes;
};

// The new rendezvous gives no attempt's number a second time. The lost one may have begun attempts
// that no node here knows of: with nodes that do not wait for a failover, and with idle ones that
// its message did not reach. As many numbers are left out as there may be such attempts; none where
// these nodes are too few for an attempt.
pb::FailoverRequest MakeFailoverRequest(size_t host, const FailoverInfo& info);

}  // namespace dslaunch
