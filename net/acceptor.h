// A listening port of a job: the rendezvous' port, and one on each node for connections between
// ranks.
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
  int port = 0;  // 0: any free port
  milliseconds handshake_timeout{5'000};
  // Connections per node. A node has one to the rendezvous; when it reconnects, the old one may
  // still be open.
  size_t max_of_node = 4;
  std::string purpose = "the rendezvous";  // name of the service in messages
  size_t max_unproven = 512;  // limit of connections that have not yet proved which node they are
};

// A node of the job that proved its identity.
struct AcceptedNode {
  uint32_t index = 0;
  // Numeric addresses of this connection: the node's, and this machine's as the node reached it.
  std::string address = {};
  std::string own_address = {};
  // See TlsRelay::broke().
  std::shared_ptr<const std::atomic<bool>> broke = {};
};

// Accepts TCP connections and keeps those that prove, by mutual TLS 1.3 and within a time limit,
// which node of the job they are. Closes all others and reports each reason once. The number of
// descriptors in use is bounded, however many connections arrive. Runs on its own thread.
// Thread-safe.
class Acceptor {
 public:
  // Both callbacks run on the acceptor's thread. `plain` is the decrypted end: reading it yields
  // what the node sends. Closing it ends the connection; it ends too when the node disconnects.
  using OnNode = std::function<void(const AcceptedNode& node, UniqueFd plain)>;
  // `line` names the refused peer and the reason.
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
