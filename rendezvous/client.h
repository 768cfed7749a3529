// An agent's side of the rendezvous stream.
#pragma once

#include <grpcpp/grpcpp.h>

#include <functional>
#include <memory>
#include <string>

#include "proto/rendezvous.pb.h"

namespace dslaunch {

class RendezvousClient {
 public:
  // Both are called on gRPC's threads, one at a time; on_end is last, once, also after Close().
  using OnMessage = std::function<void(pb::RendezvousMessage)>;
  using OnEnd = std::function<void(std::string why)>;

  RendezvousClient(std::shared_ptr<grpc::Channel> channel, OnMessage on_message, OnEnd on_end);
  // Cancels the stream and waits for on_end.
  ~RendezvousClient();

  // Queues a message; void once the stream has ended. Thread-safe.
  void Send(pb::AgentMessage message);

 private:
  class Stream;
  std::unique_ptr<Stream> stream_;
};

}  // namespace dslaunch
