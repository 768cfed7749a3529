// Tracks the progress of the ranks and detects hangs (ranks that complete no steps) and stragglers
// (ranks that slow down the others). The caller passes the time; each decision has a reason.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "proto/rendezvous.pb.h"

namespace dslaunch {

// The progress of a rank that has reported steps in this attempt. Ranks that never report have no
// RankSteps.
struct RankSteps {
  uint32_t rank = 0;
  uint64_t step = 0;                            // newest step that the rank has completed
  Clock::time_point step_at;                    // time at which the rank completed that step
  uint64_t steps_made = 0;                      // number of steps completed in this attempt
  std::chrono::microseconds median_step{0};     // median time of a step; 0 if unknown
  std::chrono::microseconds median_compute{0};  // the rank's own work per step; 0 if not reported
  bool ended = false;                           // whether the rank exited with 0
  // Whether the rank's machine has more ranks than cores, so that the rank's times are unreliable.
  bool shares_cores = false;
  // Median time of a step when the rank was last reported as a straggler; 0 if never.
  std::chrono::microseconds reported_slow{0};
};

struct HangOptions {
  milliseconds hang{0};  // shortest time without a completed step that counts as a hang
};

struct HangDecision {
  enum class Kind { kNone, kHang, kStraggler };
  Kind kind = Kind::kNone;
  std::vector<uint32_t> ranks;            // ranks that hang or slow the others down, ascending
  std::string reason;                     // reason for the user; empty if kNone
  std::chrono::microseconds slowness{0};  // new RankSteps::reported_slow; set for kStraggler
};

// Returns a hang if a running rank has completed a step before, and none has completed another step
// for the longer of options.hang and five median step times. `ranks` of the decision are the
// running ranks with the lowest step; if all are at the same step, any of them may be the cause.
//
// Returns a straggler if, after ten steps, a rank's own work takes 1.5 times the median of all
// ranks (the lower median, so that the slower of two ranks is found). Own work is the computing
// time if all ranks report it, otherwise the step time. Times below 20 ms, and ranks that share
// cores, are ignored, because scheduling causes such differences. A straggler is reported again
// only after becoming twice as slow. Returns kNone if there is neither a hang nor a straggler.
HangDecision DecideHang(Clock::time_point now, const std::vector<RankSteps>& ranks,
                        const HangOptions& options);

// Tracks the progress of an attempt's ranks and reports each hang once.
class HangWatch {
 public:
  // Removes all records, because another attempt begins.
  void Clear() { *this = {}; }
  // Records a report that arrived at `now`. Precondition: the rank belongs to the attempt.
  void OnReport(const pb::RankProgress& report, Clock::time_point now);
  // Excludes the time until `now` from hangs, because this process could not read reports.
  void OnStall(Clock::time_point now);
  // Returns the highest step that a rank reported; nullopt if no rank reported a step.
  std::optional<uint64_t> BestStep() const;
  // Returns the part of a step that exchanges take. The slowest rank waits for no other rank, so
  // this is the shortest time that a running rank spends outside of its computation. Returns 0 if
  // unknown, because a rank does not report its computing time or its times are unreliable.
  std::chrono::microseconds ExchangeTime() const;
  // Calls DecideHang. Returns a hang only once until a rank completes a step, and records
  // stragglers as reported.
  HangDecision Check(Clock::time_point now, const HangOptions& options);

 private:
  struct Progress {
    RankSteps steps;
    uint64_t first_step = 0;  // number of the first step that was reported in this attempt
  };

  // Indexed by rank; nullopt if the rank has not reported.
  std::vector<std::optional<Progress>> progress_;
  bool hang_is_reported_ = false;  // whether the hang since the last step was reported
};

}  // namespace dslaunch
