// Makes the answers of an agent in the benchmarks of the rendezvous.
#pragma once

#include <optional>

#include "proto/rendezvous.pb.h"

namespace dslaunch {

// Returns the immediate answer of an agent whose workers start and end in no time; nullopt if the
// message needs no answer. The caller sets the sender and the attempt.
inline std::optional<pb::AgentMessage> AnswerTo(const pb::RendezvousMessage& message) {
  pb::AgentMessage answer;
  switch (message.message_case()) {
    case pb::RendezvousMessage::kAssignment:
      answer.mutable_ready();
      return answer;
    case pb::RendezvousMessage::kAllReady:
      answer.mutable_finished();
      return answer;
    case pb::RendezvousMessage::kStop:
      answer.mutable_torn_down();
      return answer;
    default:
      return std::nullopt;
  }
}

}  // namespace dslaunch
