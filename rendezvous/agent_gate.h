// Accepts messages of one agent while they are valid (proto/wire/peer_check.h) and not more
// numerous than in any job. Pure: the caller passes the time.
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
  // violated, and follows "its agent sent".
  Result<void> OnMessage(pb::AgentMessage& message, Clock::time_point now);

 private:
  // Returns whether the attempt has more failures than ranks; each rank fails at most once.
  bool HasTooManyFailures(uint64_t attempt);

  const PeerLimits limits_;
  uint64_t attempt_ = 0;   // attempt of the latest failure
  uint32_t failures_ = 0;  // number of failures in attempt_
  uint32_t stops_ = 0;
  Clock::time_point second_;  // start of the current second
  uint32_t messages_ = 0;     // number of messages in the current second
};

}  // namespace dslaunch
