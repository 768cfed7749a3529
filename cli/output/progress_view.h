// The progress line: step, a bar, loss, rate, time left.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "proto/contract/status_line.h"

namespace dslaunch {

// Decides when the progress is shown and words it. Pure: time comes in.
//   live   one line redrawn in place: at most ten times a second
//   plain  lines of their own: the first step, then after 5 s or a tenth of the run
// The caller shows every text that is returned; Last() after the job, so that the final step is
// always seen.
class ProgressView {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  explicit ProgressView(bool live) : live_(live) {}

  // A status of the rank that leads the progress. Returns what to show now, if anything.
  std::optional<std::string> Update(const StatusLine& status, TimePoint now);

  // The newest state, when Update has not returned it.
  std::optional<std::string> Last();

  // The newest state with a bar, for a line of `columns`; empty: there is none yet.
  std::string Line(int columns) const;

 private:
  bool IsDue(TimePoint now) const;
  void Smooth(TimePoint now);
  // `bar` stands behind the step.
  std::string Text(const std::string& bar = "") const;

  bool live_;
  StatusLine status_;
  bool has_status_ = false;
  bool shown_ = true;  // status_ was returned
  TimePoint shown_at_;
  int64_t shown_step_ = -1;  // -1: none yet
  TimePoint anchor_at_;      // of the last rate measurement
  int64_t anchor_step_ = 0;
  double steps_per_s_ = 0;  // smoothed; 0: not known yet
};

}  // namespace dslaunch
