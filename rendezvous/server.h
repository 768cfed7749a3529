// The gRPC edge of the rendezvous: carries messages in and out; the Coordinator makes all
// decisions.
#pragma once

#include <grpcpp/grpcpp.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "rendezvous/coordinator.h"

namespace dslaunch {

class Acceptor;

struct ListenOptions {
  bool loopback_only = false;      // all nodes are this machine
  int port = 0;                    // 0: any that is free
  std::string network_interface;   // whose addresses the others are told; empty: all
  std::string advertised_address;  // at which the others may reach this machine too; empty: none
};

// Runs in the agent of options.rendezvous_node. Thread-safe.
class RendezvousServer {
 public:
  // One line for the agent's log, from any thread.
  using Log = std::function<void(const std::string& line)>;

  // Listens with mutual TLS (acceptor.h); with a single node it listens nowhere. An agent may send
  // messages only for the node of its certificate. Errors are the acceptor's.
  static Result<std::unique_ptr<RendezvousServer>> Start(CoordinatorOptions options,
                                                         const ListenOptions& listen,
                                                         const pb::Credentials& credentials,
                                                         Log log);
  ~RendezvousServer();

  // "address:port" for the other agents, best first.
  const std::vector<std::string>& endpoints() const { return endpoints_; }

  // For the agent in this process: no network, no TLS.
  std::shared_ptr<grpc::Channel> InProcessChannel();

  // Lets time pass; call every half heartbeat.
  void Tick();

 private:
  class Service;
  RendezvousServer() = default;

  std::unique_ptr<Service> service_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<Acceptor> acceptor_;
  std::vector<std::string> endpoints_;
};

}  // namespace dslaunch
