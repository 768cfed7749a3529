// Connects to other nodes of a job.
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

// Connects to the acceptors (net/acceptor.h) of other nodes and encrypts the data of these
// connections with TLS. The first call starts a thread that does the work. Thread-safe.
class NodeDialer {
 public:
  // Receives the decrypted end of the connection, or kTimedOut with the last failure of each
  // endpoint. Called once, on the dialer's thread. Closing the decrypted end closes the connection.
  using OnDone = std::function<void(Result<UniqueFd> plain)>;

  // Returns a dialer. Fails with kInternal if the credentials are invalid.
  static Result<std::unique_ptr<NodeDialer>> Start(const std::string& job_id,
                                                   const pb::Credentials& credentials);
  // Closes all connections. Does not run the callbacks of pending calls.
  ~NodeDialer();

  // Tries all `endpoints` ("address:port", best first; see ConnectSearch) and connects to the first
  // that proves to be node `node_index`. Fails after `limit`.
  void Dial(std::vector<std::string> endpoints, uint32_t node_index, milliseconds limit,
            OnDone on_done);

 private:
  class Loop;
  explicit NodeDialer(std::unique_ptr<Loop> loop);
  std::unique_ptr<Loop> loop_;
};

}  // namespace dslaunch
