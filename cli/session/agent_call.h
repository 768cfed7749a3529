// Calls to an agent that nobody blocks on.
#pragma once

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <memory>

#include "base/deadline.h"
#include "proto/agent.grpc.pb.h"

namespace dslaunch {

inline constexpr milliseconds kCallTimeout(5'000);

// What a call needs until it is over; its callback owns it.
template <class Request, class Reply = pb::Empty>
struct AgentCall {
  grpc::ClientContext context;
  Request request;
  Reply reply;

  explicit AgentCall(milliseconds timeout = kCallTimeout) {
    context.set_deadline(std::chrono::system_clock::now() + timeout);
  }
};

// Does not wait for the answer.
inline void SendStop(pb::Agent::Stub& stub, const pb::Cause& cause, bool kill_now) {
  auto call = std::make_shared<AgentCall<pb::StopRequest>>();
  *call->request.mutable_cause() = cause;
  call->request.set_kill_now(kill_now);
  stub.async()->Stop(&call->context, &call->request, &call->reply, [call](const grpc::Status&) {});
}

}  // namespace dslaunch
