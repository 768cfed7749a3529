// This process's way to its agent, which gives it connections to other ranks
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

// How other ranks' agents find this one's: what Dial needs of the rank that is called.
struct RankPlace {
  uint32_t node = 0;      // index in the hostfile
  std::string endpoints;  // "address:port", with spaces between them; empty: one node

  std::string ToText() const;
  // Throws TrainError when it is none.
  static RankPlace FromText(const std::string& text);
};

// Who gets the connections of one label. All called on the thread of RankConnections, none after
// Unlisten has returned.
struct LinkListener {
  std::function<void(size_t to, UniqueFd)> on_dialed;            // that Dial asked for
  std::function<void(size_t from, UniqueFd)> on_link;            // that another rank has dialed
  std::function<void(size_t to, const std::string&)> on_failed;  // what Dial asked for, and why not
};

// Thread-safe. Ranks are those of the whole job. A connection is a stream socket; it ends when
// either rank closes it or is gone.
class RankConnections {
 public:
  // Says hello at the agent's Unix socket as `rank` of `attempt`. `interfaces`: the network
  // interfaces for connections to other nodes, with commas between them; empty: any. Throws
  // TrainError, which names the socket.
  static std::shared_ptr<RankConnections> Open(const std::string& socket_path, int rank,
                                               uint64_t attempt, const std::string& interfaces,
                                               Deadline deadline);
  // The same over a connected socket.
  static std::shared_ptr<RankConnections> Open(UniqueFd agent, int rank, uint64_t attempt,
                                               const std::string& interfaces, Deadline deadline);
  ~RankConnections();
  RankConnections(const RankConnections&) = delete;
  RankConnections& operator=(const RankConnections&) = delete;

  size_t rank() const { return rank_; }
  const RankPlace& place() const { return place_; }

  // Connections of `label` that came before are delivered too.
  void Listen(const std::string& label, LinkListener listener);
  void Unlisten(const std::string& label);
  // Asks for a connection to rank `to`; the listener of `label` gets it, or why there is none.
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
  UniqueFd stop_read_, stop_write_;  // the thread ends when the second is closed

  Mutex send_mutex_;  // of agent_
  Mutex mutex_;
  std::map<std::string, LinkListener> listeners_ DSL_GUARDED_BY(mutex_);
  std::vector<Arrived> unclaimed_ DSL_GUARDED_BY(mutex_);
  bool agent_gone_ DSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // last: uses the rest
};

}  // namespace dslaunch
