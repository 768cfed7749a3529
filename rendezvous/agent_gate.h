// Rejects messages of an agent that are invalid (proto/wire/peer_check.h) or more numerous than an
// agent of any real job sends. The caller passes the time, so the gate uses no clock.
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

  // Checks a message and cuts texts that are too long. Fails with kUnavailable or the error of
  // CheckAgentMessage() if the message is invalid or exceeds a limit; the error completes the
  // sentence "its agent sent ...".
  Result<void> OnMessage(pb::AgentMessage& message, Clock::time_point now);

 private:
  // Counts a failure message of `attempt`. Returns whether the agent has now reported more failures
  // in this attempt than it has ranks. Such an agent is invalid, because each rank fails at most
  // once.
  bool HasTooManyFailures(uint64_t attempt);

  const PeerLimits limits_;
  uint64_t attempt_ = 0;   // attempt of the newest failure message
  uint32_t failures_ = 0;  // number of failure messages in attempt_
  uint32_t stops_ = 0;
  Clock::time_point second_;  // start of the one-second window that messages_ counts
  uint32_t messages_ = 0;     // number of messages since `second_`
};

}  // namespace dslaunch
