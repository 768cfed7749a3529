// Measures how long a rank has shown no sign of life. Pure.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

#include "base/deadline.h"
#include "proto/rendezvous.pb.h"

namespace dslaunch {

// The resources that the processes of a rank use, for display. ShowsLife ignores them.
struct RankUse {
  uint64_t memory_bytes = 0;     // resident; pages shared by several processes count for each
  uint64_t peer_sent_bytes = 0;  // the parts of RankSigns::peer_bytes
  uint64_t peer_received_bytes = 0;
  uint64_t disk_read_bytes = 0;  // from storage, not from caches
  uint64_t disk_written_bytes = 0;
};

// Counters of the work of a rank's processes, and their state. Counters are sums over the rank's
// process and its descendants.
struct RankSigns {
  uint64_t peer_bytes = 0;    // on TCP connections, except those to the store
  uint64_t store_bytes = 0;   // on TCP connections to the store; not a sign of life
  uint64_t file_bytes = 0;    // bytes moved by read() and write()
  uint64_t output_bytes = 0;  // in the logs of stdout and stderr
  uint64_t own_cpu_ms = 0;    // CPU time of the rank's process
  uint64_t child_cpu_ms = 0;  // CPU time of its descendants
  uint64_t processes = 0;     // a digest of which processes there are
  uint64_t signature = 0;     // a digest of where the Python threads are; 0: unknown
  uint64_t exchanges = 0;     // a digest of what exchanges with other ranks change; 0: unknown
  bool has_gpu = false;       // has a GPU open, so waiting may use CPU time
  bool has_device = false;    // has a device open through which it may exchange unseen
  bool stopped =
      false;  // one of its processes is stopped by a signal or a debugger, or it is frozen
  uint64_t unread_bytes = 0;  // received from other ranks, and not read by the program
  RankUse use;
};

// Returns whether a rank did anything between two looks, `gap` apart, the second of which is number
// `looks` after the first. Ignores what a waiting program does: CPU time below 2 % or 20 ms, and
// 256 bytes for each look that are read from event descriptors, besides as many bytes as the
// store's connections carried. With a GPU open, the CPU time of the rank's own process does not
// count, because waiting for a GPU uses it, nor do few bytes on connections, because NCCL's RAS
// sends some every second. Without `cpu_counts` the own CPU time never counts; the CPU time of its
// descendants always does.
bool ShowsLife(const RankSigns& before, const RankSigns& after, milliseconds gap,
               uint32_t looks = 1, bool cpu_counts = true);

// One rank's. Looks at a rank with a GPU open count only if its signature is known. A value, driven
// by its owner; no clock of its own.
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
  // Returns the time in which CPU time of its own process was the only sign of life.
  milliseconds only_cpu() const { return without_cpu_.still; }

  // Returns nullopt before the first look.
  std::optional<pb::Stillness> Report(uint32_t rank) const;

 private:
  // Time since the last sign of life.
  struct Stillness {
    // Signs at the last sign of life, with which later looks are compared, because a rank that gets
    // little CPU time shows life only after several looks.
    std::optional<RankSigns> lived;
    uint32_t looks = 0;           // since then
    uint32_t exchange_looks = 0;  // those that knew the digest of exchanges
    milliseconds still{0};
  };

  static void Update(const RankSigns& signs, milliseconds gap, bool cpu_counts, Stillness& since);
  void IgnoreDump(const RankSigns& signs, Stillness& since) const;

  std::optional<RankSigns> last_;  // newest signs that could be read
  std::optional<Clock::time_point> looked_at_;
  bool readable_ = false;   // in the newest look
  bool connected_ = false;  // bytes were seen on connections between ranks
  bool ended_ = false;
  Stillness any_;
  Stillness without_cpu_;  // ignores the CPU time of the rank's own process
};

}  // namespace dslaunch
