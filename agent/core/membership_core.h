// Connects a node to its rendezvous: joins it, notices its loss, and waits for the front end to
// choose another one.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "agent/core/agent_outbox.h"
#include "agent/core/front_end_core.h"
#include "agent/core/majority_core.h"
#include "agent/core/node_job.h"
#include "agent/core/workers_core.h"
#include "base/deadline.h"
#include "base/error.h"
#include "proto/agent.pb.h"

namespace dslaunch {

// Keeps the state of the connection to the rendezvous. See AgentCore for the rules of all parts.
class MembershipCore {
 public:
  MembershipCore(const NodeJob& job, const WorkersCore& workers, const FrontEndCore& front_end,
                 const MajorityCore& majority, AgentOutbox& out)
      : job_(job), workers_(workers), front_end_(front_end), majority_(majority), out_(out) {}

  // Called when the job is prepared. Precondition, also of OnFailover(): the rendezvous is open if
  // this node hosts it.
  void OnPrepared() { is_host_ = job_.node_index() == host(); }
  // Called when the front end runs the job. `rendezvous_endpoints`: where the rendezvous listens.
  void OnRun(std::vector<std::string> rendezvous_endpoints, Clock::time_point now);
  // Called with the address of the rendezvous as this node reaches it, or with the reason why it
  // was not found.
  void OnFound(const Result<std::string>& address, Clock::time_point now);
  // Called for every message of the rendezvous.
  void OnMessage(Clock::time_point now) { last_seen_ = now; }
  // Called when the stream has ended for a reason other than LeaveRendezvous.
  void OnEnd(const std::string& why, Clock::time_point now);
  // Called when the rendezvous of this node receives nothing from any other node. The other nodes
  // may still reach each other.
  void OnCutOff(const pb::Cause& cause, Clock::time_point now);
  // Returns kUnavailable if this node does not wait for another rendezvous.
  Result<void> CheckFailover(const pb::FailoverRequest& request) const;
  // Moves to another rendezvous. Precondition: CheckFailover() has succeeded, or an election.
  void OnFailover(const pb::FailoverRequest& request, Clock::time_point now);
  // Checks the timeouts. `was_late`: this process did not run for some time, so messages that
  // arrived then may be unread.
  void OnTick(Clock::time_point now, bool was_late);
  // Called when the drained ranks have ended. Returns true if this node waited for that to report
  // its given-up rendezvous or to join another.
  bool OnRanksEnded(Clock::time_point now);

  void Leave();
  // Leaves the rendezvous for an election.
  void LeaveForElection();
  // Leaves this node's own rendezvous, if the policy lets the other nodes continue.
  void LeaveToOthers();

  // Returns the node that hosts, or hosted, the rendezvous.
  uint32_t host() const { return moved_to_.value_or(job_.request().rendezvous_node()); }
  // Returns whether this node hosts the rendezvous.
  bool is_host() const { return is_host_; }
  Clock::time_point joined_at() const { return joined_at_; }
  // Returns whether this node waits for the front end to choose another rendezvous.
  bool awaits_failover() const { return failover_by_.has_value(); }
  // Returns whether this node joins another rendezvous once its ranks have ended.
  bool joins_when_empty() const { return joins_when_empty_; }
  // Returns the cause of the loss for which another rendezvous is awaited.
  const pb::Cause& lost_by() const { return lost_by_; }
  // Returns whether the rendezvous has been silent for so long that its connection may be the
  // problem.
  bool IsQuiet(Clock::time_point now) const;

 private:
  void Find(Clock::time_point now);
  void Join(const std::string& address, Clock::time_point now);
  bool CanBeReplaced() const;
  void AwaitFailover(const pb::Cause& cause, Clock::time_point now);
  void EmitLost(pb::RendezvousLost lost) const;

  const NodeJob& job_;
  const WorkersCore& workers_;
  const FrontEndCore& front_end_;
  const MajorityCore& majority_;
  AgentOutbox& out_;
  std::vector<std::string> endpoints_;  // endpoints of the rendezvous
  std::optional<uint32_t> moved_to_;    // host after a failover or an election
  bool is_host_ = false;
  Clock::time_point joined_at_;
  Clock::time_point last_seen_;                   // time of the newest message, or of the join
  std::optional<Clock::time_point> failover_by_;  // end of the wait for another rendezvous
  pb::Cause lost_by_;
  bool joins_when_empty_ = false;
  // Set while this node has given up its rendezvous and its ranks have not ended. The event is sent
  // after their end.
  std::optional<pb::RendezvousLost> given_up_;
};

}  // namespace dslaunch
