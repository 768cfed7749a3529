// Time limits of the front end's calls to an agent, and of its connection.
#pragma once

#include <algorithm>

#include "base/deadline.h"
#include "proto/job.pb.h"

namespace dslaunch {

inline constexpr milliseconds kCallTimeout(5'000);
// Longer than an agent waits for its supervisor (StackRequests::kLimit).
inline constexpr milliseconds kStacksTimeout(15'000);
// Long, because a node's disk may be slow.
inline constexpr milliseconds kPrepareTimeout(30'000);

// Returns the time after which a connection counts as broken if nothing arrives on it. It is longer
// than the silence after which the session itself declares a node lost.
inline milliseconds LinkSilentAfter(const pb::Timeouts& timeouts) {
  return milliseconds(std::max(timeouts.lease_ms(), timeouts.dead_ms()) + timeouts.dead_ms());
}

// Returns the time within which a node has torn itself down.
inline milliseconds TeardownLimit(const pb::Timeouts& timeouts) {
  constexpr milliseconds kSlack(5'000);  // added to the node's own limits
  return milliseconds(timeouts.grace_ms()) + milliseconds(timeouts.teardown_ms()) + kSlack;
}

}  // namespace dslaunch
