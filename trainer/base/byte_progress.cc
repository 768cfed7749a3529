#include "trainer/base/byte_progress.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/text/sanitize.h"
#include "base/text/size_text.h"
#include "trainer/base/format.h"
#include "trainer/base/log.h"

namespace dslaunch {
namespace {

constexpr std::chrono::milliseconds kTerminalInterval{200};
constexpr std::chrono::seconds kTerminalDelay{1};
constexpr std::chrono::seconds kLineInterval{30};

// Formats a duration in whole seconds.
std::string SecondsText(double seconds) {
  return DurationText(static_cast<int64_t>(std::min(seconds, 1e9) + 0.5) * 1000);
}

}  // namespace

std::string ByteProgressText(uint64_t done_bytes, uint64_t total_bytes, double seconds) {
  std::string text = BytesText(static_cast<int64_t>(done_bytes)) + " of " +
                     BytesText(static_cast<int64_t>(total_bytes));
  if (done_bytes == 0 || seconds <= 0) return text;
  const double rate = static_cast<double>(done_bytes) / seconds;
  text += ", " + BytesText(static_cast<int64_t>(rate)) + "/s";
  if (done_bytes >= total_bytes) return text;
  return text + ", " + SecondsText(static_cast<double>(total_bytes - done_bytes) / rate) + " left";
}

ByteProgress::ByteProgress(std::string what, uint64_t total_bytes)
    : what_(SanitizeForTerminal(what)),
      total_bytes_(total_bytes),
      on_terminal_(isatty(STDERR_FILENO) == 1),
      next_(begin_ + (on_terminal_ ? kTerminalDelay : kLineInterval)) {}

ByteProgress::~ByteProgress() {
  if (line_shown_) ShowInLine("");
}

void ByteProgress::Skip(uint64_t bytes) { skipped_bytes_ += bytes; }

void ByteProgress::Add(uint64_t bytes) {
  done_bytes_ += bytes;
  const Clock::time_point now = Clock::now();
  if (now < next_) return;
  const std::string text =
      what_ + ByteProgressText(done_bytes_, total_bytes_ - std::min(skipped_bytes_, total_bytes_),
                               std::chrono::duration<double>(now - begin_).count());
  if (on_terminal_) {
    ShowInLine(text);
    line_shown_ = true;
    next_ = now + kTerminalInterval;
  } else {
    PrintError(text);
    next_ = now + kLineInterval;
  }
}

}  // namespace dslaunch
