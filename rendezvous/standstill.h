// Decides that a job of any program stands still, from the signs of life of its ranks. Programs
// with status lines are judged by their steps as well (rendezvous/hang.h). Pure.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "proto/rendezvous.pb.h"

namespace dslaunch {

// The signs of life of one rank, as its node has reported them.
struct RankLife {
  uint32_t rank = 0;
  Clock::time_point reported_at;  // arrival of the report; if ended, of the first after its end
  std::chrono::microseconds still{0};     // time without a sign of life at the newest look
  uint32_t looks = 0;                     // looks in that time
  std::chrono::microseconds only_cpu{0};  // time in which CPU time was the only sign of life
  bool judged = false;                    // its processes can be read
  bool connected = false;                 // it has exchanged bytes with other ranks
  bool ended = false;                     // it exited with 0
  bool has_gpu = false;
  bool stopped = false;
  uint64_t unread_bytes = 0;       // received from other ranks, and not read by it
  bool makes_no_exchange = false;  // pb::Stillness.makes_no_exchange
};

struct StandstillOptions {
  milliseconds setup{0};      // shortest time before the ranks have exchanged bytes; 0: never
  milliseconds hang{0};       // shortest time afterwards; 0: never
  milliseconds freshness{0};  // oldest report that is used
  uint32_t world_size = 0;
};

// A rank whose only sign of life is CPU time is given this multiple of the limit.
inline constexpr int kComputeFactor = 5;

// Returns how long before the end of a limit the ranks' stacks are read, so that the verdict needs
// no time afterwards: 2 s, or a quarter of a shorter limit.
milliseconds StandstillLead(milliseconds limit);

struct StandstillDecision {
  enum class Kind {
    kNone,
    kSoon,  // a standstill if no rank gives a sign of life within StandstillLead(limit)
    kStandstill,
  };
  Kind kind = Kind::kNone;
  std::chrono::microseconds still{0};  // time for which no rank gave a sign of life
  milliseconds limit{0};               // the option that applied
  bool some_compute = false;           // ranks showed CPU time, and nothing else
  std::string reason;                  // text for the user; empty if kNone
};

// Returns a standstill if no running rank gave a sign of life for the limit, at six looks or more,
// and no rank ended in that time. Ranks whose only sign of life is CPU time may wait by spinning,
// so they count as still if at least one rank is, or is known to make no exchange: `some_compute`,
// to be judged by the stacks.
// Returns none if only one rank was started, all ranks have ended, a running rank cannot be judged,
// or its newest report is older than options.freshness.
StandstillDecision DecideStandstill(Clock::time_point now, const std::vector<RankLife>& lives,
                                    const StandstillOptions& options);

// The signs of life of an attempt's ranks.
class StandstillWatch {
 public:
  // Begins another attempt.
  void Clear() { *this = {}; }
  // Records a report that arrived at `now`. Precondition: the rank is one of the attempt.
  void OnReport(const pb::Stillness& report, Clock::time_point now);
  // Counts no time since a rank's end until `now`, in which this process could not read reports.
  void OnStall(Clock::time_point now);
  // Calls DecideStandstill with the newest reports.
  StandstillDecision Check(Clock::time_point now, const StandstillOptions& options) const;
  // The user was informed of the present standstill.
  void OnReported() { is_reported_ = true; }
  // Returns whether the user was informed and no rank has given a sign of life since.
  bool is_reported() const { return is_reported_; }
  // Returns the rank's newest report; nullptr: none.
  const RankLife* Find(uint32_t rank) const;

 private:
  std::vector<std::optional<RankLife>> lives_;  // indexed by rank; nullopt: no report
  bool is_reported_ = false;
};

}  // namespace dslaunch
