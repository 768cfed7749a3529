// Formats the progress line: step, bar, loss, rate, and time left.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "proto/contract/status_line.h"

namespace dslaunch {

// Formats the progress and decides when to show it. The caller passes the time. There are two
// styles:
//   live   one line redrawn in place, at most ten times a second
//   plain  separate lines: the first step, then every 5 s or tenth of the run
// The caller must print every text that is returned, and call Last() after the job so that the
// final step is always shown.
class ProgressView {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  explicit ProgressView(bool live) : live_(live) {}

  // Adds a status of the rank that leads the progress. Returns the text to show now; nullopt if
  // none is due.
  std::optional<std::string> Update(const StatusLine& status, TimePoint now);

  // Returns the newest state as text; nullopt if Update has already returned it.
  std::optional<std::string> Last();

  // Returns the newest state with a bar, for a terminal of width `columns`; empty before the first
  // status.
  std::string Line(int columns) const;

 private:
  bool IsDue(TimePoint now) const;
  void Smooth(TimePoint now);
  // Formats the state, with `bar` after the step.
  std::string Text(const std::string& bar = "") const;

  bool live_;
  StatusLine status_;
  bool has_status_ = false;
  bool shown_ = true;  // whether Update or Last has returned status_
  TimePoint shown_at_;
  int64_t shown_step_ = -1;  // newest step that was shown; -1 before the first shown step
  TimePoint anchor_at_;      // time of the last rate measurement
  int64_t anchor_step_ = 0;
  double steps_per_s_ = 0;  // smoothed rate; 0 until known
};

}  // namespace dslaunch
