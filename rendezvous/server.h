// The gRPC edge of the rendezvous: passes messages to and from the Coordinator, which makes all
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
  bool loopback_only = false;  // all nodes are this machine
  int port = 0;                // 0: any free port
  // Interface whose addresses are announced to the other nodes; empty: all.
  std::string network_interface;
  // Another address at which nodes may reach this machine; empty: none.
  std::string advertised_address;
};

// Runs in the agent of node options.rendezvous_node. Thread-safe.
class RendezvousServer {
 public:
  // Receives one line for the agent's log, on any thread.
  using Log = std::function<void(const std::string& line)>;

  // Starts to listen with mutual TLS (acceptor.h), unless there is only one node. An agent may send
  // messages only for the node of its certificate. Returns the acceptor's errors.
  static Result<std::unique_ptr<RendezvousServer>> Start(CoordinatorOptions options,
                                                         const ListenOptions& listen,
                                                         const pb::Credentials& credentials,
                                                         Log log);
  ~RendezvousServer();

  // Returns the endpoints for the other agents, "address:port", best first.
  const std::vector<std::string>& endpoints() const { return endpoints_; }

  // Returns a channel for the agent in this process, without network and TLS.
  std::shared_ptr<grpc::Channel> InProcessChannel();

  // Lets the coordinator check its timeouts. Call it every half heartbeat.
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
