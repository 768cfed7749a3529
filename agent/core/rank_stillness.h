// Measures how long a rank has shown no sign of life. Performs no I/O.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

#include "base/deadline.h"
#include "proto/rendezvous.pb.h"

namespace dslaunch {

// The resources that the processes of a rank use, for display only; not signs of life.
struct RankUse {
  // Resident memory; pages that several processes share count for each of them.
  uint64_t memory_bytes = 0;
  uint64_t peer_sent_bytes = 0;  // bytes sent to other ranks, a part of RankSigns::peer_bytes
  uint64_t peer_received_bytes = 0;
  uint64_t disk_read_bytes = 0;  // bytes read from storage, not from caches
  uint64_t disk_written_bytes = 0;
};

// The signs of life of a rank: counters of its processes' work, and their state. Counters are sums
// over the rank's process and its descendants.
struct RankSigns {
  uint64_t peer_bytes = 0;    // bytes on TCP connections, except connections to the store
  uint64_t store_bytes = 0;   // bytes on TCP connections to the store; not a sign of life
  uint64_t file_bytes = 0;    // bytes that the processes moved by read() and write()
  uint64_t output_bytes = 0;  // size of the logs of stdout and stderr
  uint64_t own_cpu_ms = 0;    // CPU time of the rank's process, without descendants
  uint64_t child_cpu_ms = 0;  // CPU time of the descendants of the rank's process
  uint64_t processes = 0;     // digest of the set of the rank's processes
  uint64_t signature = 0;     // digest of the Python threads' positions; 0 if unknown
  // Digest of values that change with exchanges between ranks; 0 if unknown.
  uint64_t exchanges = 0;
  bool has_gpu = false;     // whether a GPU is open, so that waiting may use CPU time
  bool has_device = false;  // whether a device is open that may carry unseen exchanges
  // Whether a process is stopped by a signal or a debugger, or the rank is frozen.
  bool stopped = false;
  uint64_t unread_bytes = 0;  // bytes received from other ranks that the program has not read
  RankUse use;
};

// Returns whether a rank showed life between two looks at its processes. `gap` is the time between
// the two looks, and `looks` is 1 plus the number of looks in between.
//
// Ignores work of a waiting program: CPU time below 2 % or 20 ms, 256 bytes for each look that are
// read from event descriptors, and as many bytes as the store's connections carried. If a GPU is
// open, ignores the CPU time of the rank's own process, because waiting for a GPU uses CPU time.
// Then also ignores few bytes on connections, because NCCL's RAS sends some every second. If
// `cpu_counts` is false, the CPU time of the rank's own process never counts. The CPU time of its
// descendants always counts.
bool ShowsLife(const RankSigns& before, const RankSigns& after, milliseconds gap,
               uint32_t looks = 1, bool cpu_counts = true);

// Measures the stillness of one rank, the time without a sign of life. Looks at a rank with a GPU
// open count only if its signature is known. Uses no clock: the caller passes the time of each
// event.
class RankStillness {
 public:
  // Handles the result of a look at the rank; nullopt if its processes cannot be read. `interval`
  // is the usual time between two looks. A longer gap than two intervals counts as two intervals,
  // because looks were lost. `wrote_dump` is whether the rank may have worked on a requested dump
  // of Flight Recorder since the last look. If so, the rank's own CPU time and file accesses since
  // that look do not count.
  void OnLook(const std::optional<RankSigns>& signs, milliseconds interval, Clock::time_point now,
              bool wrote_dump = false);
  // Records that the rank exited with 0.
  void OnEnded() { ended_ = true; }
  // Returns for how long the CPU time of the rank's own process was the only sign of life.
  milliseconds only_cpu() const { return without_cpu_.still; }

  // Returns the stillness as a message; nullopt before the first look.
  std::optional<pb::Stillness> Report(uint32_t rank) const;

 private:
  // The time since the last sign of life, and the signs with which to compare.
  struct Stillness {
    // Signs at the last sign of life. A rank that gets little CPU time shows life only over several
    // looks, so later looks are compared with these signs.
    std::optional<RankSigns> lived;
    uint32_t looks = 0;           // number of looks since `lived` was set
    uint32_t exchange_looks = 0;  // number of these looks with a digest of exchanges
    milliseconds still{0};
  };

  static void Update(const RankSigns& signs, milliseconds gap, bool cpu_counts, Stillness& since);
  void IgnoreDump(const RankSigns& signs, Stillness& since) const;

  std::optional<RankSigns> last_;  // newest signs of life that could be read
  std::optional<Clock::time_point> looked_at_;
  bool readable_ = false;   // whether the newest look could read the processes
  bool connected_ = false;  // whether bytes were ever seen on connections to ranks
  bool ended_ = false;
  Stillness any_;
  Stillness without_cpu_;  // stillness if CPU time of the own process does not count
};

}  // namespace dslaunch
