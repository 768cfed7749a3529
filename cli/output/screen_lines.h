// Emulates the screen of one stream of a rank: the finished lines, and the lines that the rank
// redraws.
#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dslaunch {

// Time for which an unfinished line that is not redrawn is not shown.
inline constexpr std::chrono::milliseconds kPartialLineDelay{200};

// A minimal terminal for one stream, for programs that redraw lines (tqdm, rich). Interprets "\r",
// backspace, and the sequences that move up (CSI A, F) or erase a line (CSI K). Lines that can no
// longer change are passed to the sink; all other lines are live. A stream that never moves up has
// a single live line, the unfinished one. All other bytes, including colours, are kept. The caller
// passes the time. Not thread-safe.
class ScreenLines {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;
  // Receives a line without its end; valid only during the call.
  using Sink = std::function<void(std::string_view)>;

  // Adds bytes that arrived at `now`, and outputs the lines that can no longer change.
  void Append(std::string_view bytes, TimePoint now, const Sink& sink);

  // Returns the lines to show below all finished lines, topmost first. Omits an unfinished line
  // without redraws until it is kPartialLineDelay old, because its end usually arrives sooner.
  std::vector<std::string> Live(TimePoint now) const;

  // Ends the unfinished line, because the user has pressed Enter and the terminal has echoed it.
  void Enter();

  // Outputs the remaining lines at the end of the stream.
  void Finish(const Sink& sink);

 private:
  struct Row {
    std::string text;         // text of the row, at most kMaxDisplayLineBytes
    bool at_start = false;    // whether the next text replaces `text`
    bool is_redrawn = false;  // whether the row was replaced at least once
  };

  void Put(std::string_view text, TimePoint now, const Sink& sink);
  void NewLine(const Sink& sink);
  void Back();
  // Executes the control sequence at the start of `text` and returns its length in bytes. Returns
  // 0, without effect, if the sequence is not supported, and nullopt if the sequence is incomplete.
  std::optional<size_t> Control(std::string_view text);
  void MoveUp(size_t rows);
  Row& row() { return rows_[at_]; }

  std::deque<Row> rows_ = std::deque<Row>(1);
  size_t at_ = 0;         // index of the cursor's row in rows_
  size_t most_up_ = 0;    // number of rows above the cursor that may still change
  TimePoint since_;       // time at which the unfinished line began
  std::string sequence_;  // incomplete control sequence
};

}  // namespace dslaunch
