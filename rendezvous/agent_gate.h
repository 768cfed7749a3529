// Takes the messages of one agent as long as they keep the rules (proto/wire/peer_check.h), and no
// more of them than a job has. Pure: time comes in.
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

  // Cuts what is too long. An error says which rule the agent has broken, and follows "its agent
  // sent".
  Result<void> OnMessage(pb::AgentMessage& message, Clock::time_point now);

 private:
  // Of an attempt: each rank fails once.
  bool HasTooManyFailures(uint64_t attempt);

  const PeerLimits limits_;
  uint64_t attempt_ = 0;   // that failed last
  uint32_t failures_ = 0;  // in it
  uint32_t stops_ = 0;
  Clock::time_point second_;  // when the current one began
  uint32_t messages_ = 0;     // in it
};

}  // namespace dslaunch
