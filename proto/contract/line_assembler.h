// From the bytes of one stream of one rank to the lines that are shown.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace dslaunch {

inline constexpr size_t kMaxDisplayLineBytes = 64 * 1024;

// Cuts bytes into lines, however they arrive. A line ends with "\n", "\r" (progress bars) or
// "\r\n"; one longer than kMaxDisplayLineBytes is split, not within a UTF-8 character. Not
// thread-safe.
class LineAssembler {
 public:
  // Gets a line without its end; valid during the call only.
  using Sink = std::function<void(std::string_view)>;

  // Adds bytes and gives every line they complete.
  void Append(std::string_view bytes, const Sink& sink);

  // The stream stands still: gives the unfinished line, which may be a prompt. Its end, if that
  // comes next, makes no line of its own.
  void FlushPartial(const Sink& sink);

  // The stream has ended: gives what is left.
  void Finish(const Sink& sink);

 private:
  void AddPartial(std::string_view text, const Sink& sink);
  void EndLine(std::string_view rest, bool by_newline, const Sink& sink);
  static std::string_view EmitFullLines(std::string_view line, const Sink& sink);

  std::string partial_;  // at most kMaxDisplayLineBytes
  bool end_shown_ =
      false;  // the last line was given before its end came: a "\n" next belongs to it
};

}  // namespace dslaunch
