// What a rank redraws, such as a progress bar, where it cannot be redrawn: in pipes and files.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "proto/contract/line_assembler.h"

namespace dslaunch {

// Cuts bytes into lines as LineAssembler does. Of a row that is redrawn (after "\r") it gives the
// last state, and of the states before at most one in kEvery: a bar that moves 10 times a second
// would fill a job's output in hours. Pure: time comes in. Not thread-safe.
class RedrawnLines {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;
  using Sink = LineAssembler::Sink;

  static constexpr std::chrono::seconds kEvery{10};

  // Adds bytes that arrived at `now` and gives the lines that are due.
  void Append(std::string_view bytes, TimePoint now, const Sink& sink);

  // The stream stands still: gives the unfinished line, which may be a prompt; a redrawn one only
  // when it is due.
  void FlushPartial(TimePoint now, const Sink& sink);

  // When Flush has something to give; nullopt: nothing is held.
  std::optional<TimePoint> FlushDue() const;
  void Flush(TimePoint now, const Sink& sink);

  // The stream has ended: gives what is left.
  void Finish(const Sink& sink);

 private:
  bool IsDue(TimePoint now) const { return !shown_at_ || now >= *shown_at_ + kEvery; }
  void AddPiece(std::string_view piece, TimePoint now, const Sink& sink);
  void OnRedrawn(std::string_view line, TimePoint now, const Sink& sink);

  LineAssembler lines_;
  std::optional<TimePoint> shown_at_;  // a state of a redrawn row
  std::optional<std::string> held_;    // the newest state that was not given
  bool is_redrawn_ = false;            // "\r" came before the unfinished line
  bool has_partial_ = false;           // it has text
  bool is_late_ = false;               // and is to be given when it is due
  bool moves_up_ = false;              // the stream redraws several rows
};

}  // namespace dslaunch
