// Decides which silent nodes are lost, and whether this node itself may be cut off.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "proto/job.pb.h"
#include "rendezvous/majority.h"
#include "rendezvous/roster.h"

namespace dslaunch {

struct SilenceDecision {
  std::vector<Participant*> lost;  // nodes to declare lost together; the longest silent node first
  std::string why;                 // reason for the losses, such as "no heartbeat for 10 s"
  // Cause that ends a job without restarts, set because this node is cut off from several other
  // nodes.
  std::optional<pb::Cause> stop;
};

class SilentNodes {
 public:
  // Borrows all arguments, which must outlive this object. `majority` is nullopt if no majority is
  // needed.
  SilentNodes(const pb::Timeouts& timeouts, const pb::Policy& policy,
              const std::optional<Majority>& majority, Roster& roster)
      : timeouts_(timeouts), policy_(policy), majority_(majority), roster_(roster) {}

  // Notifies the user of nodes that have become silent, and returns the nodes to declare lost.
  // `has_ranks` is true if an attempt has begun and the job is not ending.
  SilenceDecision Check(Clock::duration since_last_tick, bool has_ranks, Clock::time_point now);

 private:
  // Returns true if nodes that have been silent for too long must not be declared lost yet, because
  // this node may be cut off.
  bool MayBeCutOff(SilenceDecision& decision, bool has_ranks, Clock::time_point now);
  // Returns whether the node sent a message within the last half of SilenceLimit before `now`.
  bool IsHeard(const Participant& participant, Clock::time_point now) const;
  // Returns whether the nodes that still send messages are too few to continue without the silent
  // nodes.
  bool ReceivesFromTooFew(Clock::time_point now) const;

  const pb::Timeouts& timeouts_;
  const pb::Policy& policy_;
  const std::optional<Majority>& majority_;
  Roster& roster_;
  // Time at which CutOff was sent; nullopt unless most of the other nodes are silent.
  std::optional<Clock::time_point> cut_off_at_;
};

}  // namespace dslaunch
