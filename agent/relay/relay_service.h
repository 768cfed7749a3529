// What a relay serves: see proto/relay.proto.
#pragma once

#include <grpcpp/grpcpp.h>

#include <asio/io_context.hpp>
#include <asio/signal_set.hpp>
#include <map>
#include <memory>

#include "proto/relay.grpc.pb.h"

namespace dslaunch {

// Calls are handed to the loop, on whose thread everything happens. That thread starts the
// programs; all but the agent get SIGTERM when it ends.
class RelayService final : public pb::Relay::CallbackService {
 public:
  // The loop outlives the service, and the service every call. Reaps the process's children.
  explicit RelayService(asio::io_context& loop);
  ~RelayService() override;

  grpc::ServerBidiReactor<pb::ProgramInput, pb::ProgramOutput>* Run(
      grpc::CallbackServerContext* context) override;

 private:
  class Program;

  void AwaitChild();

  asio::io_context& loop_;
  asio::signal_set child_ended_;
  std::map<pid_t, std::weak_ptr<Program>> programs_;  // that run
};

}  // namespace dslaunch
