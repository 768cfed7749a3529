// Failover: when the node that hosts the rendezvous is lost, the session names another host.
//
// Only the front end may: the nodes cannot tell a dead node from a cut network, and two halves that
// both continue would write over each other. It sees both sides, and waits until the lost node has
// surely ended its ranks: its supervisor has ended, or the node has been silent for as long as its
// own lease and the teardown after it take. A closed link proves nothing: a cut network closes our
// side of it, while the node's side stays open.
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
#include "cli/core/session_nodes.h"
#include "cli/core/session_options.h"
#include "cli/core/session_outbox.h"
#include "proto/agent.pb.h"

namespace dslaunch {

// See SessionCore for what all parts have in common.
class FailoverCore {
 public:
  // A bug that the simulator must find.
  enum class PlantedBug {
    kNone,
    // The failover begins as soon as the loss is reported, before the lost node's lease is over.
    kFailsOverTooEarly,
  };

  FailoverCore(const SessionOptions& options, SessionNodes& nodes, JobState& job,
               const ContactCore& contact, SessionOutbox& out, PlantedBug bug)
      : options_(options),
        nodes_(nodes),
        job_(job),
        contact_(contact),
        out_(out),
        bug_(bug),
        peers_(nodes.size()) {}

  // The node has lost its rendezvous.
  void OnLost(size_t index, const pb::RendezvousLost& lost, Clock::time_point now);
  // The node's stream of events has ended; or it runs again.
  void StopAwaiting(size_t index) { peers_[index].awaits_failover = false; }
  // `host`: the node that the request named.
  void OnAnswered(size_t index, size_t host, const Result<pb::RendezvousOpened>& opened);
  // Fails over once the host is surely gone. Precondition: the caller knows that this process could
  // run, so that silence means something.
  void Check(Clock::time_point now);

  // There is no rendezvous to join for a node that is reached now.
  bool IsHostLost() const;
  bool AwaitsFailover(size_t index) const { return peers_[index].awaits_failover; }

 private:
  struct Peer {
    bool awaits_failover = false;  // the node has lost its rendezvous
    bool was_idle = false;         // the node had no ranks when it lost its rendezvous
  };

  bool IsHostGone(Clock::time_point now) const;
  std::vector<FailoverView> Views(Clock::time_point now) const;
  void FailOverTo(size_t host, std::vector<FailoverView> views);
  void OnFailedOver(const pb::RendezvousOpened& opened);
  // Lets the node follow the new rendezvous, or ends it.
  void Move(size_t index);
  void StopWithout(const std::string& why);

  const SessionOptions& options_;
  SessionNodes& nodes_;
  JobState& job_;
  const ContactCore& contact_;
  SessionOutbox& out_;
  const PlantedBug bug_;
  std::vector<Peer> peers_;                            // indexed by node
  std::optional<pb::RendezvousLost> rendezvous_lost_;  // newest report
  bool reported_by_host_ = false;  // the host reported that it gave the rendezvous up
  bool failing_over_ = false;      // the new host's answer is awaited
  pb::FailoverRequest request_;    // the newest
  uint64_t begun_attempt_ = 0;     // the newest that a failover was to begin
};

}  // namespace dslaunch
