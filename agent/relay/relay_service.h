// The relay's service, see proto/relay.proto.
#pragma once

#include <grpcpp/grpcpp.h>

#include <asio/io_context.hpp>
#include <asio/signal_set.hpp>
#include <map>
#include <memory>

#include "proto/relay.grpc.pb.h"

namespace dslaunch {

// Calls are passed to the loop and run on its thread. That thread starts the programs; all except
// the agent get SIGTERM when it ends.
class RelayService final : public pb::Relay::CallbackService {
 public:
  // The loop must outlive the service, and the service every call. Reaps the children of this
  // process.
  explicit RelayService(asio::io_context& loop);
  ~RelayService() override;

  grpc::ServerBidiReactor<pb::ProgramInput, pb::ProgramOutput>* Run(
      grpc::CallbackServerContext* context) override;

 private:
  class Program;

  void AwaitChild();

  asio::io_context& loop_;
  asio::signal_set child_ended_;
  std::map<pid_t, std::weak_ptr<Program>> programs_;  // running programs
};

}  // namespace dslaunch
