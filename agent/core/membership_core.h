// Connects a node to its rendezvous: joins the rendezvous, detects its loss, and waits for the
// front end to choose another rendezvous.
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

// Tracks the connection to the rendezvous and decides when to join, leave or replace it. A
// component of AgentCore.
class MembershipCore {
 public:
  MembershipCore(const NodeJob& job, const WorkersCore& workers, const FrontEndCore& front_end,
                 const MajorityCore& majority, AgentOutbox& out)
      : job_(job), workers_(workers), front_end_(front_end), majority_(majority), out_(out) {}

  // Records that the job is prepared. Precondition, also of OnFailover(): the rendezvous is open if
  // this node hosts it.
  void OnPrepared() { is_host_ = job_.node_index() == host(); }
  // Joins the rendezvous, because the front end runs the job. `rendezvous_endpoints` are the
  // endpoints at which the rendezvous listens.
  void OnRun(std::vector<std::string> rendezvous_endpoints, Clock::time_point now);
  // Handles the address of the rendezvous as this node reaches it, or the reason why the rendezvous
  // was not found.
  void OnFound(const Result<std::string>& address, Clock::time_point now);
  // Records the time of a message from the rendezvous.
  void OnMessage(Clock::time_point now) { last_seen_ = now; }
  // Handles the end of the stream for a reason other than LeaveRendezvous.
  void OnEnd(const std::string& why, Clock::time_point now);
  // Handles the report of this node's own rendezvous that it receives nothing from any other node.
  // The other nodes may still reach each other.
  void OnCutOff(const pb::Cause& cause, Clock::time_point now);
  // Fails with kUnavailable if this node is not waiting for another rendezvous.
  Result<void> CheckFailover(const pb::FailoverRequest& request) const;
  // Moves to another rendezvous. Precondition: CheckFailover() has succeeded, or an election.
  void OnFailover(const pb::FailoverRequest& request, Clock::time_point now);
  // Checks the timeouts. `was_late` is whether this process did not run for some time, so that
  // messages that arrived then may be unread.
  void OnTick(Clock::time_point now, bool was_late);
  // Handles the end of the drained ranks. Returns true if this node had delayed a step until then:
  // the report that it gave up its rendezvous, or joining another rendezvous.
  bool OnRanksEnded(Clock::time_point now);

  void Leave();
  // Leaves the rendezvous for an election.
  void LeaveForElection();
  // Leaves this node's own rendezvous if the policy lets the other nodes continue. Otherwise, or if
  // this node hosts no rendezvous or is stopping, does nothing.
  void LeaveToOthers();

  // Returns the index of the node that hosts the rendezvous, or hosted it before it was lost.
  uint32_t host() const { return moved_to_.value_or(job_.request().rendezvous_node()); }
  // Returns whether this node hosts the rendezvous.
  bool is_host() const { return is_host_; }
  Clock::time_point joined_at() const { return joined_at_; }
  // Returns whether this node is waiting for the front end to choose another rendezvous.
  bool awaits_failover() const { return failover_by_.has_value(); }
  // Returns whether this node joins another rendezvous once its ranks have ended.
  bool joins_when_empty() const { return joins_when_empty_; }
  // Returns why the rendezvous was lost for which a replacement is awaited.
  const pb::Cause& lost_by() const { return lost_by_; }
  // Returns whether the rendezvous has sent nothing for so long that its connection may be broken.
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
  std::vector<std::string> endpoints_;  // endpoints of the rendezvous to join
  std::optional<uint32_t> moved_to_;    // host of the rendezvous after a failover or an election
  bool is_host_ = false;
  Clock::time_point joined_at_;
  Clock::time_point last_seen_;  // time of the newest message of the rendezvous, or of the join
  std::optional<Clock::time_point> failover_by_;  // end of the wait for another rendezvous
  pb::Cause lost_by_;
  bool joins_when_empty_ = false;
  // The report that this node gave up its rendezvous, which is sent after its ranks have ended;
  // nullopt otherwise.
  std::optional<pb::RendezvousLost> given_up_;
};

}  // namespace dslaunch
