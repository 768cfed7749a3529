// Reduces redrawn output, such as progress bars, for pipes and files, which cannot redraw.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "proto/contract/line_assembler.h"

namespace dslaunch {

// Cuts bytes into lines as LineAssembler does. Of a row that is redrawn (after "\r"), outputs the
// last state, and an earlier state at most once in kEvery, because a bar that moves 10 times a
// second would fill a job's output in hours. Pure: the caller passes the time. Not thread-safe.
class RedrawnLines {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;
  using Sink = LineAssembler::Sink;

  static constexpr std::chrono::seconds kEvery{10};

  // Adds bytes that arrived at `now` and outputs the lines that are due.
  void Append(std::string_view bytes, TimePoint now, const Sink& sink);

  // Call it when the stream has paused: outputs the unfinished line, which may be a prompt; a
  // redrawn line only once it is due.
  void FlushPartial(TimePoint now, const Sink& sink);

  // Returns when Flush has lines to output; nullopt if nothing is held.
  std::optional<TimePoint> FlushDue() const;
  void Flush(TimePoint now, const Sink& sink);

  // Outputs the rest at the end of the stream.
  void Finish(const Sink& sink);

 private:
  bool IsDue(TimePoint now) const { return !shown_at_ || now >= *shown_at_ + kEvery; }
  void AddPiece(std::string_view piece, TimePoint now, const Sink& sink);
  void OnRedrawn(std::string_view line, TimePoint now, const Sink& sink);

  LineAssembler lines_;
  std::optional<TimePoint> shown_at_;  // when a state of a redrawn row was last output
  std::optional<std::string> held_;    // the newest state that was not output
  bool is_redrawn_ = false;            // "\r" precedes the unfinished line
  bool has_partial_ = false;           // the unfinished line is not empty
  bool is_late_ = false;               // the unfinished line is to be output when it is due
  bool moves_up_ = false;              // the stream redraws several rows
};

}  // namespace dslaunch
