// Time limits of the front end's calls to an agent, and of its connection.
#pragma once

#include <algorithm>

#include "base/deadline.h"
#include "proto/job.pb.h"

namespace dslaunch {

inline constexpr milliseconds kCallTimeout(5'000);
// Longer than an agent waits for its supervisor (StackRequests::kLimit).
inline constexpr milliseconds kStacksTimeout(15'000);
// Generous, because a node's disk may be slow.
inline constexpr milliseconds kPrepareTimeout(30'000);

// A connection on which nothing arrives for so long is over: later than the session itself judges
// the silence of its nodes.
inline milliseconds LinkSilentAfter(const pb::Timeouts& timeouts) {
  return milliseconds(std::max(timeouts.lease_ms(), timeouts.dead_ms()) + timeouts.dead_ms());
}

// Within which a node tears itself down.
inline milliseconds TeardownLimit(const pb::Timeouts& timeouts) {
  constexpr milliseconds kSlack(5'000);  // beyond what a node allows itself
  return milliseconds(timeouts.grace_ms()) + milliseconds(timeouts.teardown_ms()) + kSlack;
}

}  // namespace dslaunch
