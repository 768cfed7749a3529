// Runs the server of the ranks' shared store (StoreCore) on rank 0.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "base/unique_fd.h"
#include "trainer/comm/links/store_core.h"

namespace dslaunch {

// Serves requests on a separate thread, which no client can block. Thread-safe.
class StoreServer {
 public:
  StoreServer();
  // Stops the thread and closes all connections.
  ~StoreServer();
  StoreServer(const StoreServer&) = delete;
  StoreServer& operator=(const StoreServer&) = delete;

  // Adds a connected stream socket of a rank.
  void Adopt(UniqueFd client);

 private:
  struct Client {
    UniqueFd fd;
    std::string read;  // received bytes that do not form a complete message yet
    std::string unsent;
  };

  void Run();
  void Ring();
  // Reads and answers requests of `client`. Returns false if the client has disconnected or has
  // sent an invalid request.
  bool Read(uint64_t id, Client& client);
  bool Write(Client& client);

  UniqueFd doorbell_;  // eventfd that wakes the thread
  // core_, last_id_ and clients_ are used only by the thread.
  StoreCore core_;
  uint64_t last_id_ = 0;
  std::map<uint64_t, Client> clients_;

  Mutex mutex_;
  std::vector<UniqueFd> adopted_ DSL_GUARDED_BY(mutex_);
  bool stop_ DSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // declared last because it uses the other members
};

}  // namespace dslaunch
