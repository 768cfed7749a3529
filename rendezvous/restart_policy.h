// Decides whether another attempt follows a failed attempt. All functions are pure; each decision
// has a reason.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "proto/job.pb.h"

namespace dslaunch {

// The result of an attempt that has ended.
struct EndedAttempt {
  pb::Cause cause;  // NONE if the attempt ended for a joining node, which costs no restart
  Clock::time_point at;
  std::optional<uint64_t> best_step;  // highest step that a rank reported; nullopt if no rank did
};

struct RestartDecision {
  bool restart = false;
  milliseconds delay{0};            // pause before the next attempt, after all nodes have drained
  std::string reason;               // text for the user; never empty
  std::vector<uint32_t> set_aside;  // nodes that should get no ranks now
};

// Returns whether another start can help after `cause`. For a program's failure, this is the
// verdict on the failure's text; for the loss of a node, a hang and a timeout, a start can help.
pb::Cause::Restart RestartVerdictOf(const pb::Cause& cause);

// Decides what follows the attempt that `cause` ended, which is the last of `ended` (oldest first).
// `nodes` are all nodes of the job.
// - A restart needs one of policy.max_restarts, and a cause that may not recur: not a request of
//   the user, a program that cannot be started, bad usage or input, or a program that stopped
//   because it was asked to (ExitCode::kPreempted).
// - Two consecutive attempts without a step beyond the best of all earlier attempts are a loop,
//   provided that the program has reported steps. An attempt ended for a joining node is not
//   counted.
// - The pause doubles with each restart. There is no pause if a signal from outside ended a rank,
//   because a pause would not remove the cause.
RestartDecision DecideRestart(Clock::time_point now, const pb::Cause& cause,
                              const std::vector<EndedAttempt>& ended, const pb::Policy& policy,
                              const std::vector<pb::Node>& nodes);

// Returns the nodes that ended policy.node_failures attempts, or were the cause of two hangs,
// within cooldown_ms; each until cooldown_ms after the last of these events. A hang counts only if
// its rank is known. DecideQuorum still uses these nodes if there would otherwise be fewer than
// min_nodes.
std::vector<uint32_t> NodesSetAside(Clock::time_point now, const std::vector<EndedAttempt>& ended,
                                    const pb::Policy& policy);

// Returns the number of failed attempts, each of which costs a restart if another attempt follows.
uint32_t CountFailed(const std::vector<EndedAttempt>& ended);

// Returns the highest step that a rank reported; 0 if no rank reported a step.
uint64_t BestStep(const std::vector<EndedAttempt>& ended);

}  // namespace dslaunch
