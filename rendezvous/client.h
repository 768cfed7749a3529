// Implements the agent's side of its stream of messages to and from the rendezvous.
#pragma once

#include <grpcpp/grpcpp.h>

#include <functional>
#include <memory>
#include <string>

#include "proto/rendezvous.pb.h"

namespace dslaunch {

class RendezvousClient {
 public:
  // Receives a message of the rendezvous. All callbacks run on gRPC's threads, one at a time.
  using OnMessage = std::function<void(pb::RendezvousMessage)>;
  // Receives the reason for the end of the stream. Called once, after the last OnMessage, also if
  // the destructor cancels the stream.
  using OnEnd = std::function<void(std::string why)>;

  // Opens the stream on `channel`. If that fails, on_end receives the reason.
  RendezvousClient(std::shared_ptr<grpc::Channel> channel, OnMessage on_message, OnEnd on_end);
  // Cancels the stream and waits until on_end has returned.
  ~RendezvousClient();

  // Queues a message. Does nothing after the end of the stream. Thread-safe.
  void Send(pb::AgentMessage message);

 private:
  class Stream;
  std::unique_ptr<Stream> stream_;
};

}  // namespace dslaunch
