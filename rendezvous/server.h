// The gRPC edge of the rendezvous: sessions in, sessions out; every decision is the Coordinator's.
#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>
#include <vector>

#include "proto/contract/error.h"
#include "rendezvous/coordinator.h"

namespace dslaunch {

// Runs in the agent of options.rendezvous_node. Thread-safe.
class RendezvousServer {
 public:
  // Listens on a free TCP port of all interfaces (of loopback alone when options.one_machine) with
  // mutual TLS; with a single node it listens nowhere. kUnavailable when it cannot.
  static Result<std::unique_ptr<RendezvousServer>> Start(CoordinatorOptions options,
                                                         const pb::Credentials& credentials);
  ~RendezvousServer();

  // "address:port" for the other agents, best first.
  const std::vector<std::string>& endpoints() const { return endpoints_; }

  // The way of the agent in this process: no network, no TLS.
  std::shared_ptr<grpc::Channel> InProcessChannel();

  // Lets time pass; call every half heartbeat.
  void Tick();

 private:
  class Service;
  RendezvousServer() = default;

  std::unique_ptr<Service> service_;
  std::unique_ptr<grpc::Server> server_;
  std::vector<std::string> endpoints_;
};

}  // namespace dslaunch
