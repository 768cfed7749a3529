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
  int port = 0;  // port to listen on; 0 for any free port
  milliseconds handshake_timeout{5'000};
  // Limit of the connections of one node. A node has one connection to the rendezvous, but its old
  // connection may still be open when it reconnects, so the limit is larger.
  size_t max_of_node = 4;
  std::string purpose = "the rendezvous";  // name of the service in messages
  size_t max_unproven = 512;  // limit of connections that have not yet proved which node they are
};

// A node of the job that has proved its identity.
struct AcceptedNode {
  uint32_t index = 0;
  // Numeric address of the node's end of this connection.
  std::string address = {};
  // Numeric address of this machine's end, which the node used to reach it.
  std::string own_address = {};
  // Flag that is set if the connection broke (TlsRelay::broke()).
  std::shared_ptr<const std::atomic<bool>> broke = {};
};

// Accepts TCP connections and keeps those that prove by mutual TLS 1.3, within a time limit, which
// node of the job they are. Closes all other connections and reports each distinct refusal once.
// The number of descriptors in use is bounded, however many connections arrive. Runs on its own
// thread. Thread-safe.
class Acceptor {
 public:
  // Receives an accepted connection, on the acceptor's thread. `plain` is the decrypted end:
  // reading from it yields the data that the node sends, and closing it ends the connection. It
  // reads end of file when the node disconnects.
  using OnNode = std::function<void(const AcceptedNode& node, UniqueFd plain)>;
  // Receives a line that names a refused peer and the reason, on the acceptor's thread.
  using OnRefused = std::function<void(const std::string& line)>;

  // Returns an acceptor that listens. Fails with kUnavailable if the port cannot be bound, and with
  // kInternal if the credentials are invalid.
  static Result<std::unique_ptr<Acceptor>> Start(const AcceptorOptions& options,
                                                 const pb::Credentials& credentials, OnNode on_node,
                                                 OnRefused on_refused);
  // Closes all connections and stops listening.
  ~Acceptor();

  // Returns the port at which the acceptor listens; never 0.
  int port() const;

 private:
  class Loop;
  explicit Acceptor(std::unique_ptr<Loop> loop);
  std::unique_ptr<Loop> loop_;
};

}  // namespace dslaunch
