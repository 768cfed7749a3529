// Measures how long a rank has shown no sign of life. Does no I/O.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

#include "base/deadline.h"
#include "proto/rendezvous.pb.h"

namespace dslaunch {

// The resources that the processes of a rank use, for display. ShowsLife ignores them.
struct RankUse {
  uint64_t memory_bytes = 0;     // resident memory; pages that processes share count for each
  uint64_t peer_sent_bytes = 0;  // part of RankSigns::peer_bytes
  uint64_t peer_received_bytes = 0;
  uint64_t disk_read_bytes = 0;  // bytes read from storage, not from caches
  uint64_t disk_written_bytes = 0;
};

// Counters of the work of a rank's processes, and their state. Counters are sums over the rank's
// process and its descendants.
struct RankSigns {
  uint64_t peer_bytes = 0;    // bytes on TCP connections, except those to the store
  uint64_t store_bytes = 0;   // bytes on TCP connections to the store; no sign of life
  uint64_t file_bytes = 0;    // bytes moved by read() and write()
  uint64_t output_bytes = 0;  // size of the logs of stdout and stderr
  uint64_t own_cpu_ms = 0;    // CPU time of the rank's process
  uint64_t child_cpu_ms = 0;  // CPU time of the descendants of the rank's process
  uint64_t processes = 0;     // digest of the set of processes
  uint64_t signature = 0;     // digest of the positions of the Python threads; 0 if unknown
  uint64_t exchanges = 0;     // digest of values that exchanges with ranks change; 0 if unknown
  bool has_gpu = false;       // true if a GPU is open, so that waiting may use CPU time
  bool has_device = false;    // true if a device is open that may carry unseen exchanges
  // True if a process is stopped by a signal or a debugger, or the rank is frozen.
  bool stopped = false;
  uint64_t unread_bytes = 0;  // bytes received from other ranks that the program has not read
  RankUse use;
};

// Returns whether a rank did anything between two looks that are `gap` apart; the second is look
// number `looks` after the first. Ignores what a waiting program does: CPU time below 2 % or 20 ms,
// and 256 bytes for each look that are read from event descriptors, besides as many bytes as the
// store's connections carried. With a GPU open, ignores the CPU time of the rank's own process,
// because waiting for a GPU uses it, and few bytes on connections, because NCCL's RAS sends some
// every second. Without `cpu_counts` the CPU time of the rank's own process never counts; the CPU
// time of its descendants always does.
bool ShowsLife(const RankSigns& before, const RankSigns& after, milliseconds gap,
               uint32_t looks = 1, bool cpu_counts = true);

// Measures the stillness of one rank. Looks at a rank with a GPU open count only if its signature
// is known. Has no clock: the owner passes the time of each event.
class RankStillness {
 public:
  // Called with the result of a look at the rank; nullopt if its processes cannot be read.
  // `interval` is the usual time between two looks. A gap of more than two intervals counts as two,
  // because looks were lost then. `wrote_dump`: since the last look the rank may have worked on a
  // dump of Flight Recorder that the agent asked for; then its own CPU time and file accesses since
  // that look do not count.
  void OnLook(const std::optional<RankSigns>& signs, milliseconds interval, Clock::time_point now,
              bool wrote_dump = false);
  // Called when the rank exited with 0.
  void OnEnded() { ended_ = true; }
  // Returns the time in which the CPU time of the rank's own process was the only sign of life.
  milliseconds only_cpu() const { return without_cpu_.still; }

  // Returns the stillness; nullopt before the first look.
  std::optional<pb::Stillness> Report(uint32_t rank) const;

 private:
  // Time since the last sign of life.
  struct Stillness {
    // Signs at the last sign of life, with which later looks are compared, because a rank that gets
    // little CPU time shows life only after several looks.
    std::optional<RankSigns> lived;
    uint32_t looks = 0;           // number of looks since `lived`
    uint32_t exchange_looks = 0;  // number of looks since `lived` with a digest of exchanges
    milliseconds still{0};
  };

  static void Update(const RankSigns& signs, milliseconds gap, bool cpu_counts, Stillness& since);
  void IgnoreDump(const RankSigns& signs, Stillness& since) const;

  std::optional<RankSigns> last_;  // newest signs that could be read
  std::optional<Clock::time_point> looked_at_;
  bool readable_ = false;   // true if the newest look could read the processes
  bool connected_ = false;  // true once bytes were seen on connections between ranks
  bool ended_ = false;
  Stillness any_;
  Stillness without_cpu_;  // ignores the CPU time of the rank's own process
};

}  // namespace dslaunch
