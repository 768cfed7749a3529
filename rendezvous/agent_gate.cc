#include "rendezvous/agent_gate.h"

#include <utility>

namespace dslaunch {
namespace {

// Limit of the stop requests of an agent, far more than a user sends by pressing Ctrl-C repeatedly.
constexpr uint32_t kMostStops = 100;
// Limit of the messages of an agent in a second, enough for heartbeats and one or two messages for
// each rank.
constexpr uint32_t kMostMessagesPerSecond = 1'000;

}  // namespace

Result<void> AgentGate::OnMessage(pb::AgentMessage& message, Clock::time_point now) {
  DSL_TRY(CheckAgentMessage(message, limits_));
  if (now - second_ >= std::chrono::seconds(1)) {
    second_ = now;
    messages_ = 0;
  }
  const bool too_fast = ++messages_ > kMostMessagesPerSecond + uint64_t{2} * limits_.slots;
  if (too_fast || (message.has_stop() && ++stops_ > kMostStops) ||
      (message.has_worker_failed() && HasTooManyFailures(message.attempt())))
    return Error{ExitCode::kUnavailable, "more messages than any job has"};
  return {};
}

bool AgentGate::HasTooManyFailures(uint64_t attempt) {
  if (std::exchange(attempt_, attempt) != attempt) failures_ = 0;
  return ++failures_ > limits_.slots;
}

}  // namespace dslaunch
