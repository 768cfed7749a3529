// Calls to an agent that nobody blocks on.
#pragma once

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <memory>
#include <utility>

#include "base/deadline.h"
#include "cli/session/call_times.h"
#include "proto/agent.grpc.pb.h"

namespace dslaunch {

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

// Does not wait for the answer. `owner` of the stub is kept until it comes.
inline void SendStop(pb::Agent::Stub& stub, const pb::Cause& cause, bool kill_now,
                     std::shared_ptr<const void> owner = nullptr) {
  auto call = std::make_shared<AgentCall<pb::StopRequest>>();
  *call->request.mutable_cause() = cause;
  call->request.set_kill_now(kill_now);
  stub.async()->Stop(&call->context, &call->request, &call->reply,
                     [call, owner = std::move(owner)](const grpc::Status&) {});
}

}  // namespace dslaunch
