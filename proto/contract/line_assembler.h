// Splits the output of one rank into lines for display.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace dslaunch {

inline constexpr size_t kMaxDisplayLineBytes = 64 * 1024;

// Splits bytes into lines, whatever the sizes of the pieces in which they arrive. A line ends with
// "
// ", "\r" (progress bars) or "\r
// ". Lines longer than kMaxDisplayLineBytes are split, but never within a UTF-8 character. Not
// thread-safe.
class LineAssembler {
 public:
  // Receives a line without its line end. The line is valid only during the call.
  using Sink = std::function<void(std::string_view)>;

  // Adds bytes, and emits every line that they complete.
  void Append(std::string_view bytes, const Sink& sink);

  // Emits the unfinished line of a stream that has paused, because it may be a prompt. If the
  // line's end follows, it does not produce another line.
  void FlushPartial(const Sink& sink);

  // Emits the unfinished line at the end of the stream.
  void Finish(const Sink& sink);

 private:
  void AddPartial(std::string_view text, const Sink& sink);
  void EndLine(std::string_view rest, bool by_newline, const Sink& sink);
  static std::string_view EmitFullLines(std::string_view line, const Sink& sink);

  std::string partial_;  // unfinished line, at most kMaxDisplayLineBytes
  // True if the last line was emitted before its end arrived, so that a following "
  // " belongs to it.
  bool end_shown_ = false;
};

}  // namespace dslaunch
