// Accepts connections at a listening port of a job: the rendezvous's port, and a port on each node
// for connections between ranks.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/deadline.h"
#include "base/error.h"
#include "base/unique_fd.h"
#include "proto/job.pb.h"

namespace dslaunch {

struct AcceptorOptions {
  std::string job_id;
  uint32_t num_nodes = 0;
  bool loopback_only = false;
  int port = 0;  // 0 for any free port
  milliseconds handshake_timeout{5'000};
  // Limit of connections of a node. A node has one connection to the rendezvous; when it
  // reconnects, the old one may still be open.
  size_t max_of_node = 4;
  std::string purpose = "the rendezvous";  // name of the service in messages
  size_t max_unproven = 512;  // limit of connections that have not proved yet which node they are
};

// A node of the job that has proved its identity.
struct AcceptedNode {
  uint32_t index = 0;
  // Numeric addresses of this connection: the node's address, and this machine's as the node
  // reached it.
  std::string address = {};
  std::string own_address = {};
  // Whether the connection broke. See TlsRelay::broke().
  std::shared_ptr<const std::atomic<bool>> broke = {};
};

// Accepts TCP connections and keeps those that prove which node of the job they are, by mutual TLS
// 1.3 and within a time limit. Closes all other connections and reports each reason once. The
// number of descriptors in use is bounded, however many connections arrive. Runs on its own thread.
// Thread-safe.
class Acceptor {
 public:
  // Receives an accepted connection. `plain` is the decrypted end: reading from it yields what the
  // node sends, and closing it ends the connection. It reads end of file when the node disconnects.
  // Both callbacks run on the acceptor's thread.
  using OnNode = std::function<void(const AcceptedNode& node, UniqueFd plain)>;
  // Receives a line that names a refused peer and the reason.
  using OnRefused = std::function<void(const std::string& line)>;

  // Fails with kUnavailable if the port cannot be bound, and with kInternal if the credentials are
  // invalid.
  static Result<std::unique_ptr<Acceptor>> Start(const AcceptorOptions& options,
                                                 const pb::Credentials& credentials, OnNode on_node,
                                                 OnRefused on_refused);
  // Closes all connections.
  ~Acceptor();

  int port() const;

 private:
  class Loop;
  explicit Acceptor(std::unique_ptr<Loop> loop);
  std::unique_ptr<Loop> loop_;
};

}  // namespace dslaunch
