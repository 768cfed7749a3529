// Implements the service of proto/relay.proto, which runs programs on a relay's node.
#pragma once

#include <grpcpp/grpcpp.h>

#include <asio/io_context.hpp>
#include <asio/signal_set.hpp>
#include <map>
#include <memory>

#include "proto/relay.grpc.pb.h"

namespace dslaunch {

// Runs programs for the front end. Calls are posted to the loop and run on its thread. That thread
// starts the programs; when it ends, all programs except the agent get SIGTERM.
class RelayService final : public pb::Relay::CallbackService {
 public:
  // Handles SIGCHLD and reaps the programs. `loop` must outlive the service, and the service must
  // outlive every call.
  explicit RelayService(asio::io_context& loop);
  ~RelayService() override;

  grpc::ServerBidiReactor<pb::ProgramInput, pb::ProgramOutput>* Run(
      grpc::CallbackServerContext* context) override;

 private:
  class Program;

  void AwaitChild();

  asio::io_context& loop_;
  asio::signal_set child_ended_;
  std::map<pid_t, std::weak_ptr<Program>> programs_;  // running programs, by process ID
};

}  // namespace dslaunch
