// Tracks the progress of a rank from the reports on its status pipe.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "base/deadline.h"
#include "proto/contract/status_line.h"
#include "proto/rendezvous.pb.h"

namespace dslaunch {

// Returns `seconds`, a time from a status line, in microseconds. Limited to the range from 0 to
// about 31 years.
uint64_t ReportedTimeUs(double seconds);

// Computes the median of the newest 21 values.
class RollingMedian {
 public:
  void Add(uint64_t value);
  // Returns the median of the newest 21 values, or of all values if there are fewer; 0 if no value
  // was added.
  uint64_t Median() const;

 private:
  static constexpr size_t kValues = 21;
  std::array<uint64_t, kValues> values_ = {};
  size_t count_ = 0;  // number of values added so far, including replaced ones
};

// An exchange for which a rank waits.
struct RankWait {
  std::string exchange;
  milliseconds lasts{0};
};

// Tracks the progress of one rank. Uses no clock: the caller passes the time of each event.
class RankProgressTracker {
 public:
  void OnStatus(const StatusLine& line, Clock::time_point now);
  void OnEnded() { ended_ = true; }

  // Returns the progress; nullopt if the rank has not reported a step, because programs need not
  // report steps.
  std::optional<pb::RankProgress> Report(uint32_t rank, Clock::time_point now) const;

  // Returns the exchange for which the rank waits; nullopt unless the rank's last report was about
  // a wait.
  std::optional<RankWait> Wait(Clock::time_point now) const;

 private:
  std::optional<int64_t> step_;
  Clock::time_point since_;
  RollingMedian step_us_;
  RollingMedian compute_us_;
  bool ended_ = false;
  std::string exchange_;  // exchange for which the rank waits; empty if the rank does not wait
  Clock::time_point waits_since_;
};

}  // namespace dslaunch
