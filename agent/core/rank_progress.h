// The progress of a rank, as reported on its status pipe.
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

// Returns a time of a status line in microseconds: at least 0, and at most 31 years.
uint64_t ReportedTimeUs(double seconds);

// Keeps the median of the newest values. A new value replaces the oldest one.
class RollingMedian {
 public:
  void Add(uint64_t value);
  uint64_t Median() const;  // 0: no value yet

 private:
  static constexpr size_t kValues = 21;
  std::array<uint64_t, kValues> values_ = {};
  size_t count_ = 0;  // number of values ever added
};

// An exchange for which a rank has reported to wait.
struct RankWait {
  std::string exchange;
  milliseconds lasts{0};
};

// Tracks one rank. A value without a clock, driven by its owner.
class RankProgressTracker {
 public:
  void OnStatus(const StatusLine& line, Clock::time_point now);
  void OnEnded() { ended_ = true; }

  // Returns nullopt for a rank that has not reported a step, which a program need not do.
  std::optional<pb::RankProgress> Report(uint32_t rank, Clock::time_point now) const;

  // Returns nullopt unless the rank's last report was that it waits.
  std::optional<RankWait> Wait(Clock::time_point now) const;

 private:
  std::optional<int64_t> step_;
  Clock::time_point since_;
  RollingMedian step_us_;
  RollingMedian compute_us_;
  bool ended_ = false;
  std::string exchange_;  // empty if the rank has not reported to wait
  Clock::time_point waits_since_;
};

}  // namespace dslaunch
