// What one stream of a rank shows on a terminal: its finished lines, and those that it redraws.
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

// A small terminal for one stream, for programs that redraw lines (tqdm, rich): "\r", backspace,
// and the sequences that move up (CSI A, F) or erase a line (CSI K). A line that can no longer
// change is given to the sink; the others are the live ones. A stream that never moves up has one
// live line, the unfinished one. All other bytes, colours too, stay as they are. Pure: time comes
// in. Not thread-safe.
class ScreenLines {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;
  // Gets a line without its end; valid during the call only.
  using Sink = std::function<void(std::string_view)>;

  // Adds bytes that arrived at `now`.
  void Append(std::string_view bytes, TimePoint now, const Sink& sink);

  // The lines to show below all finished ones, topmost first. An unfinished line that has not been
  // redrawn is left out until it has stood for kPartialLineDelay: mostly its end comes at once.
  std::vector<std::string> Live(TimePoint now) const;

  // The end of the unfinished line came from the user's terminal, where it is shown.
  void Enter();

  // The stream has ended: gives what is left.
  void Finish(const Sink& sink);

 private:
  struct Row {
    std::string text;         // at most kMaxDisplayLineBytes
    bool at_start = false;    // the next text replaces it
    bool is_redrawn = false;  // was replaced at least once
  };

  void Put(std::string_view text, TimePoint now, const Sink& sink);
  void NewLine(const Sink& sink);
  void Back();
  // Carries out the control sequence at the start of `text`; how many bytes it has. 0: it is none
  // that is known, and nothing is done. nullopt: it is not complete.
  std::optional<size_t> Control(std::string_view text);
  void MoveUp(size_t rows);
  Row& row() { return rows_[at_]; }

  std::deque<Row> rows_ = std::deque<Row>(1);
  size_t at_ = 0;         // of rows_
  size_t most_up_ = 0;    // rows above the cursor that may still change
  TimePoint since_;       // the unfinished line
  std::string sequence_;  // begun, and not complete
};

}  // namespace dslaunch
