// Logs the collective operations of a rank, by operation and size (comms_logger in an engine
// configuration).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "base/mutex.h"
#include "trainer/config/monitor_config.h"

namespace dslaunch {

// The calls of one operation with messages of one size.
struct CommsRow {
  int64_t calls = 0;
  double seconds = 0;
};
// Totals keyed by operation and by bytes of a message.
using CommsRows = std::map<std::pair<std::string, int64_t>, CommsRow>;

// Returns a table of numbers of calls, sizes, latencies and bandwidths (profile/communication.h).
// Pure.
std::string CommsTable(const CommsRows& rows, int ranks);
// Returns a line about one exchange: "all_reduce of 4.0 MiB in 1.200 ms: 3.33 GB/s, on the bus 3.33
// GB/s".
std::string CommsLine(const std::string& kind, int64_t bytes, double seconds, int ranks);

// Records every exchange of this process while this object exists. The duration of an exchange is
// from its start until its result is available. At most one object may exist at a time.
class CommsLogger {
 public:
  CommsLogger(const CommsLoggerConfig& config, int rank, int ranks);
  ~CommsLogger();
  CommsLogger(const CommsLogger&) = delete;
  CommsLogger& operator=(const CommsLogger&) = delete;

  std::string Table() const;

 private:
  struct Hooks;
  void Add(const std::string& kind, int64_t bytes, double seconds);

  const CommsLoggerConfig config_;
  const int rank_;
  const int ranks_;
  mutable Mutex mutex_;  // guards rows that threads of a backend update
  CommsRows rows_ DSL_GUARDED_BY(mutex_);
  uint64_t handle_ = 0;
};

}  // namespace dslaunch
