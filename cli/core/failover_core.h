// Implements failover: when the node that hosts the rendezvous is lost, the session chooses another
// host.
//
// Only the front end may do that. The nodes cannot distinguish a dead node from a cut network, and
// two halves of a job that both continue would overwrite each other's files. The front end sees
// both halves. It waits until the lost node has certainly ended its ranks. This is certain once the
// node's supervisor has ended, or once the node has been silent for as long as its lease and the
// teardown after the lease can take. A closed link does not prove this, because a cut network
// closes only this side of the link while the node's side stays open.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/error.h"
#include "cli/core/contact_core.h"
#include "cli/core/failover_decision.h"
#include "cli/core/job_state.h"
#include "cli/core/node_requests.h"
#include "cli/core/session_nodes.h"
#include "cli/core/session_options.h"
#include "cli/core/session_outbox.h"
#include "proto/agent.pb.h"

namespace dslaunch {

// The part of SessionCore that moves the rendezvous to another node. Changes only its own state and
// the objects that it gets by a reference that is not const.
class FailoverCore {
 public:
  // A bug that can be planted to test that the simulator finds it.
  enum class PlantedBug {
    kNone,
    // Begins the failover as soon as the loss is reported, before the lost node's lease expires.
    kFailsOverTooEarly,
  };

  FailoverCore(const SessionOptions& options, NodeRequests& requests, SessionNodes& nodes,
               JobState& job, const ContactCore& contact, SessionOutbox& out, PlantedBug bug)
      : options_(options),
        requests_(requests),
        nodes_(nodes),
        job_(job),
        contact_(contact),
        out_(out),
        bug_(bug),
        peers_(nodes.size()) {}

  // Handles a node's report that it has lost its rendezvous.
  void OnLost(size_t index, const pb::RendezvousLost& lost, Clock::time_point now);
  // Stops waiting for the node to fail over, because its stream of events has ended or the node
  // runs again.
  void StopAwaiting(size_t index) { peers_[index].awaits_failover = false; }
  // Prepares a node that is reached again, either at once or when a rendezvous exists that the node
  // can join.
  void OnReached(size_t index);
  // Handles a node's answer to the request to fail over. `host` is the node that the request named
  // as the new host.
  void OnAnswered(size_t index, size_t host, const Result<pb::RendezvousOpened>& opened);
  // Begins a failover once the host has certainly ended. Precondition: this process was able to
  // run, so a silence is caused by the node.
  void Check(Clock::time_point now);

  // Returns whether no rendezvous currently exists that a reconnected node could join.
  bool IsHostLost() const;
  bool AwaitsFailover(size_t index) const { return peers_[index].awaits_failover; }

 private:
  struct Peer {
    // True if the node has lost its rendezvous and waits for a failover.
    bool awaits_failover = false;
    bool was_idle = false;  // true if the node had no ranks when it lost its rendezvous
    bool is_held = false;   // true if the node is reached again but there is no rendezvous to join
  };

  bool IsHostGone(Clock::time_point now) const;
  std::vector<FailoverView> Views(Clock::time_point now) const;
  void FailOverTo(size_t host, std::vector<FailoverView> views);
  void OnFailedOver(const pb::RendezvousOpened& opened);
  // Sends the node to the new rendezvous, or ends the node if that is not possible.
  void Move(size_t index);
  void StopWithout(const std::string& why);

  const SessionOptions& options_;
  NodeRequests& requests_;
  SessionNodes& nodes_;
  JobState& job_;
  const ContactCore& contact_;
  SessionOutbox& out_;
  const PlantedBug bug_;
  std::vector<Peer> peers_;  // failover state of each node, indexed by node
  // Loss that was reported with the newest attempt.
  std::optional<pb::RendezvousLost> rendezvous_lost_;
  bool reported_by_host_ = false;  // true if the host itself gave up the rendezvous
  bool failing_over_ = false;      // true until the new host has answered
  pb::FailoverRequest request_;    // newest request, which all nodes get
  uint64_t begun_attempt_ = 0;     // number of the newest attempt that a failover was to begin
};

}  // namespace dslaunch
