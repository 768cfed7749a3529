// Detects that no rank of a job makes progress, from the ranks' signs of life. Works for any
// program; programs with status lines are judged by their steps as well (rendezvous/hang.h). The
// caller passes the time.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "proto/rendezvous.pb.h"

namespace dslaunch {

// The signs of life of a rank, as reported by its node.
struct RankLife {
  uint32_t rank = 0;
  // Arrival of the newest report; if `ended`, of the first report after the end.
  Clock::time_point reported_at;
  // Time without a sign of life at the node's newest look at the rank's processes.
  std::chrono::microseconds still{0};
  uint32_t looks = 0;                     // number of looks during `still`
  std::chrono::microseconds only_cpu{0};  // time in which CPU time was the only sign of life
  bool judged = false;                    // whether the rank's processes can be observed
  bool connected = false;                 // whether the rank has exchanged bytes with other ranks
  bool ended = false;                     // whether the rank exited with 0
  bool has_gpu = false;
  bool stopped = false;
  uint64_t unread_bytes = 0;       // bytes received from other ranks that the rank has not read
  bool makes_no_exchange = false;  // whether the rank is known to make no exchange with other ranks
};

struct StandstillOptions {
  milliseconds setup{0};      // limit until the ranks have exchanged bytes; 0 for no limit
  milliseconds hang{0};       // limit after the ranks have exchanged bytes; 0 for no limit
  milliseconds freshness{0};  // maximum age of a report that counts
  uint32_t world_size = 0;
};

// Factor by which the limit is longer for a rank whose only sign of life is CPU time.
inline constexpr int kComputeFactor = 5;

// Returns the time before the end of a limit at which the ranks' stacks are read, so that the
// verdict is ready at the end: 2 s, or a quarter of a shorter limit.
milliseconds StandstillLead(milliseconds limit);

struct StandstillDecision {
  enum class Kind {
    kNone,
    kSoon,  // a standstill follows if no rank shows a sign of life within StandstillLead(limit)
    kStandstill,
  };
  Kind kind = Kind::kNone;
  std::chrono::microseconds still{0};  // time since a rank last showed a sign of life
  milliseconds limit{0};               // limit of StandstillOptions that has been reached
  bool some_compute = false;           // whether CPU time is the only sign of life of some ranks
  std::string reason;                  // reason for the user; empty if kNone
};

// Returns a standstill if, for the whole limit, no running rank showed a sign of life and no rank
// ended. Each rank's node must have looked at least six times in this time. The limit is
// options.setup until a rank has exchanged bytes with other ranks, then options.hang.
//
// Ranks whose only sign of life is CPU time may wait by spinning. Such ranks count as still if at
// least one other rank is still, or is known to make no exchange. `some_compute` is then set, and
// the stacks must decide.
//
// Returns kNone in each of these cases:
// - Fewer than two ranks were started, or a rank has not reported.
// - All ranks have ended.
// - A running rank cannot be judged, or its newest report is older than options.freshness.
// - The limit is 0.
StandstillDecision DecideStandstill(Clock::time_point now, const std::vector<RankLife>& lives,
                                    const StandstillOptions& options);

// Tracks the signs of life of an attempt's ranks and detects when they cease.
class StandstillWatch {
 public:
  // Removes all records, because another attempt begins.
  void Clear() { *this = {}; }
  // Records a report that arrived at `now`. Precondition: the rank belongs to the attempt.
  void OnReport(const pb::Stillness& report, Clock::time_point now);

  // Excludes the time until `now`, in which this process could not read reports, from the time
  // since a rank ended.
  void OnStall(Clock::time_point now);

  // Returns the decision of DecideStandstill() for the newest report of each rank.
  StandstillDecision Check(Clock::time_point now, const StandstillOptions& options) const;
  // Records that the user was notified of the current standstill.
  void OnReported() { is_reported_ = true; }
  // Returns whether the user was notified of a standstill and no rank has shown a sign of life
  // since then.
  bool is_reported() const { return is_reported_; }
  // Returns the newest report of a rank; nullptr if the rank has not reported.
  const RankLife* Find(uint32_t rank) const;

 private:
  // Indexed by rank; nullopt if the rank has not reported.
  std::vector<std::optional<RankLife>> lives_;
  bool is_reported_ = false;
};

}  // namespace dslaunch
