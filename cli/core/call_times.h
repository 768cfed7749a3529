// Defines time limits of the front end's calls to an agent, and of the connection to the agent.
#pragma once

#include <algorithm>

#include "base/deadline.h"
#include "proto/job.pb.h"

namespace dslaunch {

// Limit of a call that has no limit of its own below.
inline constexpr milliseconds kCallTimeout(5'000);
// Limit for collecting the stacks of a node. It exceeds the time for which the agent waits for its
// supervisor (StackRequests::kLimit).
inline constexpr milliseconds kStacksTimeout(15'000);
// Limit for preparing a node. A node's disk may be slow, so the limit is long.
inline constexpr milliseconds kPrepareTimeout(30'000);

// Returns the silence after which a connection counts as broken. It is longer than the silence
// after which the session declares the node lost.
inline milliseconds LinkSilentAfter(const pb::Timeouts& timeouts) {
  return milliseconds(std::max(timeouts.lease_ms(), timeouts.dead_ms()) + timeouts.dead_ms());
}

// Returns the time within which a node has torn itself down, including the node's own limits.
inline milliseconds TeardownLimit(const pb::Timeouts& timeouts) {
  constexpr milliseconds kSlack(5'000);  // added to the node's own limits
  return milliseconds(timeouts.grace_ms()) + milliseconds(timeouts.teardown_ms()) + kSlack;
}

}  // namespace dslaunch
