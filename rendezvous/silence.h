// Decides which silent nodes are lost, and when this node may be the one that is cut off.
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
  std::vector<Participant*> lost;  // to be declared lost together; first the longest silent
  std::string why;
  // The end of a job that may not restart, because this node is cut off from several others.
  std::optional<pb::Cause> stop;
};

class SilentNodes {
 public:
  // The arguments must outlive this object. `majority`: nullopt if none is needed.
  SilentNodes(const pb::Timeouts& timeouts, const pb::Policy& policy,
              const std::optional<Majority>& majority, Roster& roster)
      : timeouts_(timeouts), policy_(policy), majority_(majority), roster_(roster) {}

  // Notifies the user of nodes that have become silent. `has_ranks`: whether an attempt has begun
  // and the job does not end yet.
  SilenceDecision Check(Clock::duration since_last_tick, bool has_ranks, Clock::time_point now);

 private:
  // Returns whether nodes that have been silent for too long are not yet to be declared lost,
  // because this node may be the one that is cut off.
  bool MayBeCutOff(SilenceDecision& decision, bool has_ranks, Clock::time_point now);
  // Returns whether the node sent a message shortly before `now`.
  bool IsHeard(const Participant& participant, Clock::time_point now) const;
  // Returns whether the nodes that are heard are too few to continue without the others.
  bool ReceivesFromTooFew(Clock::time_point now) const;

  const pb::Timeouts& timeouts_;
  const pb::Policy& policy_;
  const std::optional<Majority>& majority_;
  Roster& roster_;
  // When CutOff was sent; set while most of the other nodes are silent.
  std::optional<Clock::time_point> cut_off_at_;
};

}  // namespace dslaunch
