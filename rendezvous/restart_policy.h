// Decides whether another attempt follows a failed one. Pure; each decision has a reason.
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
  pb::Cause cause;  // NONE if the attempt was ended for a joining node, which costs no restart
  Clock::time_point at;
  std::optional<uint64_t> best_step;  // highest step that a rank reported; nullopt: none
};

struct RestartDecision {
  bool restart = false;
  milliseconds delay{0};            // pause before the next attempt, after all nodes have drained
  std::string reason;               // text for the user; never empty
  std::vector<uint32_t> set_aside;  // nodes that should get no ranks now
};

// Returns whether another start can help after `cause`: the verdict on the text of a program's
// failure; for the loss of a node, a hang and a timeout, that it can.
pb::Cause::Restart RestartVerdictOf(const pb::Cause& cause);

// Decides what follows the attempt that `cause` ended, which is the last of `ended` (oldest first).
// `nodes` are all nodes of the job.
// - A restart needs one of policy.max_restarts and a cause that may not recur: not a request of the
//   user, a program that cannot be started, bad usage or input, or a program that stopped because
//   it
//   was asked to (ExitCode::kPreempted).
// - Two consecutive attempts without a step beyond the best of all earlier ones are a loop,
//   provided
//   that the program has reported steps. An attempt ended for a joining node is not counted.
// - The pause doubles with each restart. There is none if a signal from outside ended a rank, which
//   has no cause that a pause would remove.
RestartDecision DecideRestart(Clock::time_point now, const pb::Cause& cause,
                              const std::vector<EndedAttempt>& ended, const pb::Policy& policy,
                              const std::vector<pb::Node>& nodes);

// Returns the nodes that ended policy.node_failures attempts, or were the cause of two hangs,
// within cooldown_ms, until cooldown_ms after the last of them. A hang counts only if its rank is
// known. DecideQuorum still uses them rather than have fewer than min_nodes.
std::vector<uint32_t> NodesSetAside(Clock::time_point now, const std::vector<EndedAttempt>& ended,
                                    const pb::Policy& policy);

// Returns the number of failed attempts; each costs a restart if another attempt follows.
uint32_t CountFailed(const std::vector<EndedAttempt>& ended);

// Returns the highest step that a rank reported; 0: none did.
uint64_t BestStep(const std::vector<EndedAttempt>& ended);

}  // namespace dslaunch
