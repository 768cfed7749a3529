// Decides whether another attempt follows a failed attempt. All functions are pure; each decision
// includes a reason.
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
  milliseconds delay{0};  // pause before the next attempt, counted after all nodes have drained
  std::string reason;     // reason of the decision, for users; never empty
  std::vector<uint32_t> set_aside;  // nodes to leave without ranks in the next attempt
};

// Returns whether another attempt can help after `cause`. If a program failed, this is the verdict
// on the program's error text. After the loss of a node, a hang or a timeout, another attempt can
// help.
pb::Cause::Restart RestartVerdictOf(const pb::Cause& cause);

// Decides what follows the attempt that `cause` ended, which is the last of `ended` (oldest first).
// `nodes` are all nodes of the job.
// - A restart uses up one of policy.max_restarts and requires a cause that may not recur. Causes
//   that recur are a request of the user, a program that cannot be started, bad usage or input, and
//   a program that stopped because it was asked to (ExitCode::kPreempted).
// - No restart follows a loop: two consecutive attempts without a step beyond the best of all
//   earlier attempts, provided that the program has reported steps. An attempt that ended for a
//   joining node is not counted.
// - The pause doubles with each restart. If a signal from outside ended a rank, a pause would not
//   remove the cause, so there is none.
RestartDecision DecideRestart(Clock::time_point now, const pb::Cause& cause,
                              const std::vector<EndedAttempt>& ended, const pb::Policy& policy,
                              const std::vector<pb::Node>& nodes);

// Returns the nodes that ended policy.node_failures attempts, or caused two hangs, within
// cooldown_ms. Each node is returned until cooldown_ms after the last of these events. A hang
// counts only if its rank is known. DecideQuorum still uses these nodes if there would otherwise be
// fewer than min_nodes.
std::vector<uint32_t> NodesSetAside(Clock::time_point now, const std::vector<EndedAttempt>& ended,
                                    const pb::Policy& policy);

// Returns the number of attempts that failed. Each uses up a restart if another attempt follows.
uint32_t CountFailed(const std::vector<EndedAttempt>& ended);

// Returns the highest step that a rank reported in any attempt; 0 if no rank reported a step.
uint64_t BestStep(const std::vector<EndedAttempt>& ended);

}  // namespace dslaunch
