// Detects hangs (ranks that make no steps) and stragglers (ranks that slow the others down). Pure;
// each decision has its reason.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "base/deadline.h"

namespace dslaunch {

// One rank that has reported steps in this attempt; a rank that never does is left out.
struct RankSteps {
  uint32_t rank = 0;
  uint64_t step = 0;                            // its last
  Clock::time_point step_at;                    // when it made that one
  uint64_t steps_made = 0;                      // in this attempt
  std::chrono::microseconds median_step{0};     // 0: not known yet
  std::chrono::microseconds median_compute{0};  // of its own work in a step; 0: it does not say
  bool ended = false;                           // with 0
  bool shares_cores = false;  // its machine has more ranks than cores, so its times say little
  std::chrono::microseconds reported_slow{
      0};  // median with which it was named a straggler; 0: never
};

struct HangOptions {
  milliseconds hang{0};  // least time without a step
};

struct HangDecision {
  enum class Kind { kNone, kHang, kStraggler };
  Kind kind = Kind::kNone;
  std::vector<uint32_t> ranks;            // ascending
  std::string reason;                     // for the user; empty when kNone
  std::chrono::microseconds slowness{0};  // of a straggler: its RankSteps.reported_slow from now on
};

// A hang: some rank made a step once, and none that has not ended has made one for options.hang and
// for five of its usual steps. The ranks with the lowest step are named; when all wait at the same
// one it may be any of them. Ranks that ended are out of it.
//
// A straggler: a rank whose own work takes 1.5 times the median of all ranks (of an even number the
// lower one, so that the slower of two can be told), by its computing time if all ranks say it, by
// its step time if not; after ten steps. Below 20 ms, and where ranks share cores, that is how
// processes are scheduled, and nobody is named. It is named again only when it has become twice as
// slow.
HangDecision DecideHang(Clock::time_point now, const std::vector<RankSteps>& ranks,
                        const HangOptions& options);

}  // namespace dslaunch
