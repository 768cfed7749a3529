// Tracks the lease under which a node of a detached job runs ranks, and elects another rendezvous
// when the rendezvous that gave the lease is lost.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "agent/core/agent_outbox.h"
#include "agent/core/election_core.h"
#include "agent/core/node_job.h"
#include "agent/core/workers_core.h"
#include "base/deadline.h"
#include "base/error.h"
#include "proto/rendezvous.pb.h"
#include "proto/wire/lease.h"

namespace dslaunch {

// Ends this node's part of a job without a front end, or moves it to another rendezvous, if no
// majority of the nodes supports its rendezvous. A component of AgentCore.
class MajorityCore {
 public:
  // Bugs that tests enable to check that the simulator finds them.
  struct PlantedBugs {
    bool minority = false;  // whether a single node counts as a majority
    bool no_fence = false;  // whether a node may elect before the leases of the lost rendezvous end
  };

  MajorityCore(const NodeJob& job, const WorkersCore& workers, AgentOutbox& out,
               const PlantedBugs& bugs, BootClock::time_point now)
      : job_(job), workers_(workers), out_(out), bugs_(bugs), lease_({}, now) {}

  void OnPrepared();
  // Begins to require a majority, because the job no longer has a front end.
  void OnDetach(Clock::time_point now, BootClock::time_point boot_now);
  // Renews the lease, because the rendezvous has answered the heartbeat sent at `sent`. The
  // rendezvous had a majority `age` before it answered. Thread-safe.
  void OnMajority(BootClock::time_point sent, std::chrono::microseconds age,
                  BootClock::time_point now);
  // Returns the time left of the lease; nullopt if no lease is required. The supervisor enforces
  // the lease even while the agent's thread waits for a disk. Thread-safe.
  std::optional<milliseconds> LeaseLeft(BootClock::time_point now);
  // Updates whether a lease is required. Precondition: called after each event.
  void UpdateLeaseCounts();

  // Records that the rendezvous has sent a message of `attempt`.
  void OnMessage(uint64_t attempt) { newest_attempt_ = std::max(newest_attempt_, attempt); }
  // Returns whether ranks may start now: no majority is needed, or the lease of the majority is
  // valid. If not, stores the assignment for TakeHeld().
  bool Admits(const pb::RendezvousMessage& assignment, BootClock::time_point boot_now);
  // Removes and returns the assignment that Admits() stored; nullopt if none is stored.
  std::optional<pb::RendezvousMessage> TakeHeld() { return std::exchange(held_, std::nullopt); }
  // Records that ranks start after `restarts` restarts.
  void OnRestarts(uint32_t restarts) { restarts_ = restarts; }
  // Records that the attempt ends. `failed` is whether a failure ends it.
  void OnDrain(bool failed);
  void OnPeers(const pb::Peers& peers);

  // Returns whether the job has no front end, so that this node's ranks need a majority.
  bool IsNeeded() const { return election_.has_value() && is_detached_; }
  bool is_electing() const { return is_electing_; }
  // Returns whether the nodes can elect another rendezvous now.
  bool MayElect() const;
  // Handles the loss of the rendezvous, which has no majority or cannot be reached by this node.
  // Elects another rendezvous if possible; otherwise stops this node's part of the job.
  void OnLost();
  // Begins the election. Precondition: MayElect(), and this node has left the rendezvous on node
  // `host` because of `cause`.
  void Elect(uint32_t host, const pb::Cause& cause, Clock::time_point now);
  void OnRanksEnded() { election_->OnRanksEnded(); }

  // Handles a vote that node `voter` has sent to this node. Ignores it if the job needs no majority
  // or this node stops.
  void OnVote(uint32_t voter, const pb::Vote& vote, Clock::time_point now);
  // Handles the end of a voter's connection before its vote was answered.
  void OnVoterGone(uint32_t voter);
  // Handles the answer of node `candidate` to SendVote. Ignored unless this node is electing.
  void OnVoteAnswer(uint32_t candidate, const pb::VoteAnswer& answer, Clock::time_point now);
  // Handles the result of OpenRendezvous: the endpoints of this node's rendezvous, or an error.
  void OnRendezvousOpened(const Result<std::vector<std::string>>& endpoints);

  // Calls OnLost() if the lease has expired or is missing. `joined_at` is the time when this node
  // joined its rendezvous.
  void CheckLease(Clock::time_point joined_at, Clock::time_point now,
                  BootClock::time_point boot_now);
  void CheckElection(Clock::time_point now);

 private:
  void CarryOut(ElectionActions actions);

  const NodeJob& job_;
  const WorkersCore& workers_;
  AgentOutbox& out_;
  const PlantedBugs bugs_;
  Lease lease_;
  Clock::time_point lease_seen_;  // time of the newest renewal, or of the detachment
  bool is_detached_ = false;
  std::optional<ElectionCore> election_;  // nullopt if this job needs no majority
  bool is_electing_ = false;
  pb::Cause lost_by_;            // cause of the rendezvous' loss, which led to the election
  uint64_t newest_attempt_ = 0;  // newest attempt of any message from the rendezvous
  uint32_t restarts_ = 0;        // number of restarts used, from the messages received so far
  std::optional<pb::RendezvousMessage> held_;  // assignment that waits for a lease
  std::atomic<bool> lease_counts_ = false;
};

}  // namespace dslaunch
