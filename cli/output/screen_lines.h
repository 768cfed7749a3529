// Emulates the screen of one stream of a rank: its finished lines, and those that it redraws.
#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dslaunch {

inline constexpr std::chrono::milliseconds kPartialLineDelay{200};

// A minimal terminal for one stream, for programs that redraw lines (tqdm, rich). Interprets "\r",
// backspace, and the sequences that move up (CSI A, F) or erase a line (CSI K). Lines that can no
// longer change go to the sink; the others are live. A stream that never moves up has one live
// line, the unfinished one. All other bytes, including colours, are kept. Pure: the caller passes
// the time. Not thread-safe.
class ScreenLines {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;
  // Receives a line without its end; valid only during the call.
  using Sink = std::function<void(std::string_view)>;

  // Adds bytes that arrived at `now`.
  void Append(std::string_view bytes, TimePoint now, const Sink& sink);

  // Returns the lines to show below all finished ones, topmost first. Omits an unfinished line that
  // has not been redrawn until it is kPartialLineDelay old, because its end usually follows at
  // once.
  std::vector<std::string> Live(TimePoint now) const;

  // Ends the unfinished line, because the user has pressed Enter and the terminal has echoed it.
  void Enter();

  // Outputs the rest at the end of the stream.
  void Finish(const Sink& sink);

 private:
  struct Row {
    std::string text;         // at most kMaxDisplayLineBytes
    bool at_start = false;    // the next text replaces `text`
    bool is_redrawn = false;  // has been replaced at least once
  };

  void Put(std::string_view text, TimePoint now, const Sink& sink);
  void NewLine(const Sink& sink);
  void Back();
  // Executes the control sequence at the start of `text` and returns its length in bytes. Returns
  // 0, without effect, if the sequence is not supported, and nullopt if it is incomplete.
  std::optional<size_t> Control(std::string_view text);
  void MoveUp(size_t rows);
  Row& row() { return rows_[at_]; }

  std::deque<Row> rows_ = std::deque<Row>(1);
  size_t at_ = 0;         // index of the cursor's row in rows_
  size_t most_up_ = 0;    // number of rows above the cursor that may still change
  TimePoint since_;       // when the unfinished line began
  std::string sequence_;  // an incomplete sequence
};

}  // namespace dslaunch
