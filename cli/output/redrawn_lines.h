// Reduces redrawn output, such as progress bars, for pipes and files, which cannot redraw lines.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "proto/contract/line_assembler.h"

namespace dslaunch {

// Splits bytes into lines as LineAssembler does. For a row that is redrawn (after "\r"), outputs
// the last state, and earlier states at most once in kEvery. Otherwise a bar that moves 10 times a
// second would make a job's output huge within hours. The caller passes the time. Not thread-safe.
class RedrawnLines {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;
  using Sink = LineAssembler::Sink;

  static constexpr std::chrono::seconds kEvery{10};

  // Adds bytes that arrived at `now` and outputs the lines that are due.
  void Append(std::string_view bytes, TimePoint now, const Sink& sink);

  // Outputs the unfinished line, which may be a prompt. A redrawn line is output only once it is
  // due. Call it when the stream has paused.
  void FlushPartial(TimePoint now, const Sink& sink);

  // Returns the time at which Flush will have lines to output; nullopt if no line is held.
  std::optional<TimePoint> FlushDue() const;

  // Outputs the held line if it is due at `now`.
  void Flush(TimePoint now, const Sink& sink);

  // Outputs the remaining lines at the end of the stream.
  void Finish(const Sink& sink);

 private:
  bool IsDue(TimePoint now) const { return !shown_at_ || now >= *shown_at_ + kEvery; }
  void AddPiece(std::string_view piece, TimePoint now, const Sink& sink);
  void OnRedrawn(std::string_view line, TimePoint now, const Sink& sink);

  LineAssembler lines_;
  std::optional<TimePoint> shown_at_;  // time at which a state of a redrawn row was last output
  std::optional<std::string> held_;    // newest state of the row that was not output
  bool is_redrawn_ = false;            // whether "\r" precedes the unfinished line
  bool has_partial_ = false;           // whether the unfinished line has text
  bool is_late_ = false;               // whether to output the unfinished line once it is due
  bool moves_up_ = false;              // whether the stream redraws several rows
};

}  // namespace dslaunch
