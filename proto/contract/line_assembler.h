// Splits the output of one rank into lines for display.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace dslaunch {

inline constexpr size_t kMaxDisplayLineBytes = 64 * 1024;

// Splits bytes into lines, independent of the sizes of the pieces in which they arrive. A line ends
// with "\n", "\r" (progress bars) or "\r\n". Lines longer than kMaxDisplayLineBytes are split, but
// never within a UTF-8 character. Not thread-safe.
class LineAssembler {
 public:
  // Receives a line without its line end. The line is valid only during the call.
  using Sink = std::function<void(std::string_view)>;

  // Appends bytes, and passes every line that they complete to `sink`.
  void Append(std::string_view bytes, const Sink& sink);

  // Passes the unfinished line of a stream that has paused to `sink`, because the line may be a
  // prompt. A line end that follows does not produce another line.
  void FlushPartial(const Sink& sink);

  // Passes the unfinished line to `sink` at the end of the stream.
  void Finish(const Sink& sink);

 private:
  void AddPartial(std::string_view text, const Sink& sink);
  void EndLine(std::string_view rest, bool by_newline, const Sink& sink);
  static std::string_view EmitFullLines(std::string_view line, const Sink& sink);

  std::string partial_;  // unfinished line, at most kMaxDisplayLineBytes bytes
  // True if the last line was passed on before its end arrived, so that a following "\n" belongs to
  // that line.
  bool end_shown_ = false;
};

}  // namespace dslaunch
