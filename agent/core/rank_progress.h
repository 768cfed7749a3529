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

// The median of the newest values; the oldest makes room.
class RollingMedian {
 public:
  void Add(uint64_t value);
  uint64_t Median() const;  // 0: no value yet

 private:
  static constexpr size_t kValues = 21;
  std::array<uint64_t, kValues> values_ = {};
  size_t count_ = 0;  // ever added
};

// An exchange that a rank has reported to wait for.
struct RankWait {
  std::string exchange;
  milliseconds lasts{0};
};

// One rank's. A value, driven by its owner; no clock of its own.
class RankProgressTracker {
 public:
  void OnStatus(const StatusLine& line, Clock::time_point now);
  void OnEnded() { ended_ = true; }

  // nullopt for a rank that has not reported a step: a program need not.
  std::optional<pb::RankProgress> Report(uint32_t rank, Clock::time_point now) const;

  // nullopt unless the rank has reported that it waits, and nothing since.
  std::optional<RankWait> Wait(Clock::time_point now) const;

 private:
  std::optional<int64_t> step_;
  Clock::time_point since_;
  RollingMedian step_us_;
  RollingMedian compute_us_;
  bool ended_ = false;
  std::string exchange_;  // empty: it has not reported to wait
  Clock::time_point waits_since_;
};

}  // namespace dslaunch
