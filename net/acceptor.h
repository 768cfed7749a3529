// An open port of a job: that of its rendezvous, and one on each node for connections of ranks.
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
  int port = 0;  // 0: any that is free
  milliseconds handshake_timeout{5'000};
  // Of one node. A node has one to the rendezvous; when it comes anew its last one may not have
  // ended yet.
  size_t max_of_node = 4;
  std::string purpose = "the rendezvous";  // for messages
  size_t max_unproven = 512;  // connections in all that have not proved yet which node they are
};

// Who has proved to be a node of the job.
struct AcceptedNode {
  uint32_t index = 0;
  // Numeric, of this connection: the node's, and this machine's as the node reached it.
  std::string address = {};
  std::string own_address = {};
  // As of TlsRelay.
  std::shared_ptr<const std::atomic<bool>> broke = {};
};

// Takes TCP connections from anywhere, and lets in those that prove, by mutual TLS 1.3 and within
// a time limit, which node of the job they are. All others are closed and told of once; however
// many come, the descriptors in use stay bounded. A thread of its own does the work. Thread-safe.
class Acceptor {
 public:
  // Both are called on the acceptor's thread. `plain` carries what the node sends and gets,
  // decrypted; closing it ends the connection, and so does the node.
  using OnNode = std::function<void(const AcceptedNode& node, UniqueFd plain)>;
  // One line: who was refused and why.
  using OnRefused = std::function<void(const std::string& line)>;

  // kUnavailable when the port cannot be had, kInternal when the credentials are none.
  static Result<std::unique_ptr<Acceptor>> Start(const AcceptorOptions& options,
                                                 const pb::Credentials& credentials, OnNode on_node,
                                                 OnRefused on_refused);
  // Ends all connections.
  ~Acceptor();

  int port() const;

 private:
  class Loop;
  explicit Acceptor(std::unique_ptr<Loop> loop);
  std::unique_ptr<Loop> loop_;
};

}  // namespace dslaunch
