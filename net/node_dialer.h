// Connections to the other nodes of a job.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/error.h"
#include "base/unique_fd.h"
#include "proto/job.pb.h"

namespace dslaunch {

// Connects to acceptors (net/acceptor.h) of other nodes, and carries what goes over the connections
// through TLS, on a thread of its own, which the first call starts. Thread-safe.
class NodeDialer {
 public:
  // On the dialer's thread, once: the connection's decrypted end, or kTimedOut with what each
  // endpoint said last. Closing the end closes the connection.
  using OnDone = std::function<void(Result<UniqueFd> plain)>;

  // kInternal when the credentials are none.
  static Result<std::unique_ptr<NodeDialer>> Start(const std::string& job_id,
                                                   const pb::Credentials& credentials);
  // Ends all connections; what is under way is not reported.
  ~NodeDialer();

  // Tries all `endpoints` ("address:port"), best first (ConnectSearch), and takes the first that
  // proves to be node `node_index`.
  void Dial(std::vector<std::string> endpoints, uint32_t node_index, milliseconds limit,
            OnDone on_done);

 private:
  class Loop;
  explicit NodeDialer(std::unique_ptr<Loop> loop);
  std::unique_ptr<Loop> loop_;
};

}  // namespace dslaunch
