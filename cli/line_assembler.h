// From the bytes of one stream of one rank to the lines that are shown.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "proto/contract/harmless_text.h"

namespace dslaunch {

inline constexpr size_t kMaxDisplayLineBytes = 64 * 1024;
inline constexpr std::chrono::milliseconds kPartialLineDelay{200};

// "[node:rank] ".
std::string LineTag(std::string_view node, int rank);

// Cuts bytes into lines, however they arrive. A line ends with "\n", "\r" (progress bars) or
// "\r\n"; one longer than kMaxDisplayLineBytes is split, not within a UTF-8 character. Not
// thread-safe.
class LineAssembler {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;
  // Gets a line without its end; valid during the call only.
  using Sink = std::function<void(std::string_view)>;

  // With `sanitize` (a terminal) lines are made Harmless; without (pipes, files) bytes pass as they
  // are.
  explicit LineAssembler(bool sanitize) : sanitize_(sanitize) {}

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
  std::string_view EmitFullLines(std::string_view line, const Sink& sink) const;
  void Emit(std::string_view line, const Sink& sink) const;

  bool sanitize_;
  std::string partial_;  // at most kMaxDisplayLineBytes
  TimePoint partial_since_;
  bool end_shown_ =
      false;  // the last line was given before its end came: a "\n" next belongs to it
};

}  // namespace dslaunch
