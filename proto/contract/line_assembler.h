// From the bytes of one stream of one rank to the lines that are shown.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace dslaunch {

inline constexpr size_t kMaxDisplayLineBytes = 64 * 1024;
inline constexpr std::chrono::milliseconds kPartialLineDelay{200};

// Cuts bytes into lines, however they arrive. A line ends with "\n", "\r" (progress bars) or
// "\r\n"; one longer than kMaxDisplayLineBytes is split, not within a UTF-8 character. Not
// thread-safe.
class LineAssembler {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;
  // Gets a line without its end; valid during the call only.
  using Sink = std::function<void(std::string_view)>;

  // Adds bytes that arrived at `now` and gives every line they complete.
  void Append(std::string_view bytes, TimePoint now, const Sink& sink);

  // When the unfinished line is to be shown; nullopt: there is none.
  std::optional<TimePoint> FlushDue() const;

  // Gives the unfinished line if it is due at `now`: a prompt or a progress bar should not wait for
  // its end.
  void FlushPartial(TimePoint now, const Sink& sink);

  // The stream has ended: gives what is left.
  void Finish(const Sink& sink);

 private:
  void AddPartial(std::string_view text, TimePoint now, const Sink& sink);
  void EndLine(std::string_view rest, bool by_newline, const Sink& sink);
  static std::string_view EmitFullLines(std::string_view line, const Sink& sink);

  std::string partial_;  // at most kMaxDisplayLineBytes
  TimePoint partial_since_;
  bool end_shown_ =
      false;  // the last line was given before its end came: a "\n" next belongs to it
};

}  // namespace dslaunch
