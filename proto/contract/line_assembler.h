// Splits the output of one rank into lines for display.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace dslaunch {

inline constexpr size_t kMaxDisplayLineBytes = 64 * 1024;

// Splits bytes into lines, in whatever pieces they arrive. A line ends with "\n", "\r" (progress
// bars) or "\r\n". Longer lines than kMaxDisplayLineBytes are split, but never within a UTF-8
// character. Not thread-safe.
class LineAssembler {
 public:
  // Receives a line without its end, valid during the call only.
  using Sink = std::function<void(std::string_view)>;

  // Adds bytes and emits every line that they complete.
  void Append(std::string_view bytes, const Sink& sink);

  // Emits the unfinished line, for a stream that has paused: it may be a prompt. If the line's end
  // follows, it does not produce another line.
  void FlushPartial(const Sink& sink);

  // Emits the rest at the end of the stream.
  void Finish(const Sink& sink);

 private:
  void AddPartial(std::string_view text, const Sink& sink);
  void EndLine(std::string_view rest, bool by_newline, const Sink& sink);
  static std::string_view EmitFullLines(std::string_view line, const Sink& sink);

  std::string partial_;  // at most kMaxDisplayLineBytes
  // True if the last line was emitted before its end arrived, so a following "\n" belongs to it.
  bool end_shown_ = false;
};

}  // namespace dslaunch
