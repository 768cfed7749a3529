// Provides asynchronous calls to an agent.
#pragma once

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <memory>
#include <utility>

#include "base/deadline.h"
#include "cli/core/call_times.h"
#include "proto/agent.grpc.pb.h"

namespace dslaunch {

// The state of a call until it completes. The callback of the call owns it.
template <class Request, class Reply = pb::Empty>
struct AgentCall {
  // Registers the call with OpenCalls if a caller waits for its end; released last.
  std::shared_ptr<const void> owner;
  grpc::ClientContext context;
  Request request;
  Reply reply;

  explicit AgentCall(milliseconds timeout = kCallTimeout,
                     std::shared_ptr<const void> counted = nullptr)
      : owner(std::move(counted)) {
    context.set_deadline(std::chrono::system_clock::now() + timeout);
  }
};

// Sends a request to stop without waiting for the answer. `counted` is passed to AgentCall, which
// owns it.
inline void SendStop(pb::Agent::Stub& stub, const pb::Cause& cause, bool kill_now,
                     std::shared_ptr<const void> counted = nullptr) {
  auto call = std::make_shared<AgentCall<pb::StopRequest>>(kCallTimeout, std::move(counted));
  *call->request.mutable_cause() = cause;
  call->request.set_kill_now(kill_now);
  stub.async()->Stop(&call->context, &call->request, &call->reply, [call](const grpc::Status&) {});
}

}  // namespace dslaunch
