// Accepts messages of an agent while they are valid (proto/wire/peer_check.h) and not more numerous
// than in any job. The caller passes the time, so the gate uses no clock.
#pragma once

#include <cstdint>

#include "base/deadline.h"
#include "base/error.h"
#include "proto/rendezvous.pb.h"
#include "proto/wire/peer_check.h"

namespace dslaunch {

class AgentGate {
 public:
  explicit AgentGate(const PeerLimits& limits) : limits_(limits) {}

  // Checks a message and cuts texts that are too long. An error names the rule that the agent
  // violated, and continues the sentence "its agent sent".
  Result<void> OnMessage(pb::AgentMessage& message, Clock::time_point now);

 private:
  // Counts a failure. Returns whether the attempt has more failures than ranks, although each rank
  // fails at most once.
  bool HasTooManyFailures(uint64_t attempt);

  const PeerLimits limits_;
  uint64_t attempt_ = 0;   // attempt of the newest failure
  uint32_t failures_ = 0;  // number of failures in attempt_
  uint32_t stops_ = 0;
  Clock::time_point second_;  // beginning of the current second
  uint32_t messages_ = 0;     // number of messages in the current second
};

}  // namespace dslaunch
