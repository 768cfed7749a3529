// What an agent of the rendezvous' benches answers.
#pragma once

#include <optional>

#include "proto/rendezvous.pb.h"

namespace dslaunch {

// At once, as if its workers started and ended in no time; nullopt: nothing. Who speaks, and of
// which attempt, is the caller's to say.
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
