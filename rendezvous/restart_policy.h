// Decides whether another attempt follows a failed one. Pure; each decision has its reason.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "proto/job.pb.h"

namespace dslaunch {

// The result of one attempt.
struct EndedAttempt {
  pb::Cause cause;  // kind NONE when it was ended for a node that joined: that costs no restart
  Clock::time_point at;
  std::optional<uint64_t> best_step;  // the highest one that a rank reported; none: no rank did
};

struct RestartDecision {
  bool restart = false;
  milliseconds delay{0};            // before the next attempt, after all nodes have drained
  std::string reason;               // always given; for the user
  std::vector<uint32_t> set_aside;  // nodes that should get no ranks now
};

// `ended` is oldest first, and its last is the attempt that `cause` ended; `nodes` are the job's.
// - Another try needs one of policy.max_restarts, and a cause that another try might not meet
//   again: not the user, not a program that cannot be started, not bad usage or input, and not a
//   program that stopped because it was asked to (ExitCode::kPreempted).
// - Two attempts in a row without a step beyond the best one of all before are a loop, once the
//   program has reported steps at all. An attempt that was ended for a joining node counts for
//   neither side.
RestartDecision DecideRestart(Clock::time_point now, const pb::Cause& cause,
                              const std::vector<EndedAttempt>& ended, const pb::Policy& policy,
                              const std::vector<pb::Node>& nodes);

// Nodes that ended policy.node_failures attempts within cooldown_ms, until cooldown_ms after the
// last of them. DecideQuorum still takes them rather than have fewer than min_nodes.
std::vector<uint32_t> NodesSetAside(Clock::time_point now, const std::vector<EndedAttempt>& ended,
                                    const pb::Policy& policy);

// How many of them failed: each costs a restart if another follows.
uint32_t CountFailed(const std::vector<EndedAttempt>& ended);

}  // namespace dslaunch
