// Provides a c10d store on rank 0 over the connections between the ranks, so that no other process
// can reach the store.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "base/mutex.h"
#include "base/unique_fd.h"
#include "trainer/comm/links/rank_connections.h"
#include "trainer/comm/links/store_core.h"
#include "trainer/comm/links/store_server.h"

namespace dslaunch {

// A rank's connection to the store. Several threads may have pending requests. Thread-safe.
class StoreClient {
 public:
  explicit StoreClient(UniqueFd server);
  ~StoreClient();
  StoreClient(const StoreClient&) = delete;
  StoreClient& operator=(const StoreClient&) = delete;

  // Sends a request and waits for the reply. Throws c10::DistStoreError: "store: timed out ..."
  // after `limit`, "store: Connection closed ..." if rank 0 is lost, "store: rank 0 answered ..."
  // if the reply has the wrong number of values.
  StoreReply Call(StoreRequest request, std::chrono::milliseconds limit);

 private:
  void Run();
  void Close();

  const UniqueFd server_;
  Mutex send_mutex_;  // guards writing to server_
  Mutex mutex_;
  CondVar changed_;
  uint64_t last_id_ DSL_GUARDED_BY(mutex_) = 0;
  // Pending requests by id, with their replies once these have arrived.
  std::map<uint64_t, std::optional<StoreReply>> awaited_ DSL_GUARDED_BY(mutex_);
  bool closed_ DSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // declared last because it uses the other members
};

// A c10d store whose copies (clone) share one connection to rank 0.
class LinkStore : public c10d::Store {
 public:
  LinkStore(std::shared_ptr<StoreClient> client, std::chrono::milliseconds timeout)
      : Store(timeout), client_(std::move(client)) {}

  c10::intrusive_ptr<Store> clone() override;
  using Store::compareSet;
  using Store::set;
  void set(const std::string& key, const std::vector<uint8_t>& value) override;
  std::vector<uint8_t> compareSet(const std::string& key, const std::vector<uint8_t>& expected,
                                  const std::vector<uint8_t>& desired) override;
  std::vector<uint8_t> get(const std::string& key) override;
  int64_t add(const std::string& key, int64_t value) override;
  bool deleteKey(const std::string& key) override;
  bool check(const std::vector<std::string>& keys) override;
  int64_t getNumKeys() override;
  void wait(const std::vector<std::string>& keys) override;
  void wait(const std::vector<std::string>& keys,
            const std::chrono::milliseconds& timeout) override;
  void append(const std::string& key, const std::vector<uint8_t>& value) override;
  std::vector<std::vector<uint8_t>> multiGet(const std::vector<std::string>& keys) override;
  void multiSet(const std::vector<std::string>& keys,
                const std::vector<std::vector<uint8_t>>& values) override;
  bool hasExtendedApi() const override { return true; }

 private:
  StoreReply Call(StoreRequest::Op op, std::vector<std::string> keys,
                  std::vector<std::string> values = {}, int64_t number = 0);

  std::shared_ptr<StoreClient> client_;
};

// Returns the store that all ranks of the job share. Rank 0 serves the store as long as rank 0's
// copies exist. Blocks until the connection to rank 0 is made. Throws TrainError if there is no
// connection within `timeout`.
c10::intrusive_ptr<c10d::Store> ConnectStore(const std::shared_ptr<RankConnections>& connections,
                                             const std::string& label,
                                             std::chrono::milliseconds timeout);

}  // namespace dslaunch
