// Implements the gRPC server of the rendezvous. The server passes messages to and from the
// Coordinator, which makes all decisions.
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
  bool loopback_only = false;  // true if all nodes are this machine
  int port = 0;                // port to listen on; 0 for any free port
  // Interface whose addresses are announced to the other nodes; empty for all interfaces.
  std::string network_interface;
  // Another address at which nodes may reach this machine; empty for none.
  std::string advertised_address;
};

// The rendezvous of a job, run by the agent of node options.rendezvous_node. Thread-safe.
class RendezvousServer {
 public:
  // Receives a line for the agent's log; called on any thread.
  using Log = std::function<void(const std::string& line)>;

  // Starts a rendezvous that listens with mutual TLS (acceptor.h), unless the job has a single
  // node. An agent may send messages only for the node of its certificate. Fails with the errors of
  // Acceptor::Start().
  static Result<std::unique_ptr<RendezvousServer>> Start(CoordinatorOptions options,
                                                         const ListenOptions& listen,
                                                         const pb::Credentials& credentials,
                                                         Log log);
  ~RendezvousServer();

  // Returns the endpoints at which other agents reach this server, in the form "address:port", the
  // best endpoint first.
  const std::vector<std::string>& endpoints() const { return endpoints_; }

  // Returns a channel for the agent in this process, which uses neither network nor TLS.
  std::shared_ptr<grpc::Channel> InProcessChannel();

  // Makes the coordinator check its time limits. Call this every half heartbeat.
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
