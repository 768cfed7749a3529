// Connects a rank to its node's agent, which makes connections to other ranks
// (proto/contract/rank_link.h).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/deadline.h"
#include "base/mutex.h"
#include "base/unique_fd.h"

namespace dslaunch {

// Location of a rank for Dial: its node and the endpoints of the node's agent.
struct RankPlace {
  uint32_t node = 0;  // index of the node in the hostfile
  // Agent's endpoints "address:port", separated by spaces; empty if the job has one node.
  std::string endpoints;

  std::string ToText() const;
  // Parses a text that ToText has returned. Throws TrainError for any other text.
  static RankPlace FromText(const std::string& text);
};

// Receives the connections of one label. All functions are called on the thread of RankConnections,
// or by Listen or Dial on the caller's thread, and not after Unlisten has returned.
struct LinkListener {
  // Called with a connection that Dial requested.
  std::function<void(size_t to, UniqueFd)> on_dialed;
  // Called with a connection that another rank requested.
  std::function<void(size_t from, UniqueFd)> on_link;
  // Called with the reason if Dial fails.
  std::function<void(size_t to, const std::string&)> on_failed;
};

// Requests and receives connections to other ranks. Ranks are ranks of the job. A connection is a
// stream socket that ends when either rank closes it or exits. Thread-safe.
class RankConnections {
 public:
  // Connects to the agent's Unix socket as `rank` of `attempt`. `interfaces` has the
  // comma-separated network interfaces for connections to other nodes; empty to use any. Throws a
  // TrainError that names the socket.
  static std::shared_ptr<RankConnections> Open(const std::string& socket_path, int rank,
                                               uint64_t attempt, const std::string& interfaces,
                                               Deadline deadline);
  // Like Open with a path, but uses a connected socket to the agent.
  static std::shared_ptr<RankConnections> Open(UniqueFd agent, int rank, uint64_t attempt,
                                               const std::string& interfaces, Deadline deadline);
  ~RankConnections();
  RankConnections(const RankConnections&) = delete;
  RankConnections& operator=(const RankConnections&) = delete;

  size_t rank() const { return rank_; }
  const RankPlace& place() const { return place_; }

  // Makes `listener` receive the connections of `label`, including connections that have already
  // arrived.
  void Listen(const std::string& label, LinkListener listener);
  // Removes the listener of `label`.
  void Unlisten(const std::string& label);
  // Requests a connection to rank `to`. The listener of `label` receives the connection, or the
  // reason of the failure.
  void Dial(const std::string& label, size_t to, const RankPlace& place);

 private:
  struct Arrived {
    std::string label;
    size_t from;
    UniqueFd fd;
  };

  RankConnections(UniqueFd agent, int rank);
  void Run();
  void OnBytes(const std::string& bytes, UniqueFd fd);
  void OnAgentGone();

  const UniqueFd agent_;
  const size_t rank_;
  RankPlace place_;
  UniqueFd stop_read_, stop_write_;  // pipe; the thread ends when stop_write_ is closed

  Mutex send_mutex_;  // guards writing to agent_
  Mutex mutex_;
  std::map<std::string, LinkListener> listeners_ DSL_GUARDED_BY(mutex_);
  std::vector<Arrived> unclaimed_ DSL_GUARDED_BY(mutex_);
  bool agent_gone_ DSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // declared last because it uses the other members
};

}  // namespace dslaunch
