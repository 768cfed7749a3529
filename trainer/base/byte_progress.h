// Shows the progress of a long read or write.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace dslaunch {

// Returns text such as "1.2 GiB of 4.8 GiB, 612.0 MiB/s, 6 s left". Pure function.
std::string ByteProgressText(uint64_t done_bytes, uint64_t total_bytes, double seconds);

// Prints the progress to stderr. On a terminal, updates one line, beginning after one second. If
// stderr is not a terminal, prints a line every 30 s, beginning after 30 s. Short work therefore
// has no output.
class ByteProgress {
 public:
  // Begins to measure time. `what` is the beginning of each line, such as "out: ".
  ByteProgress(std::string what, uint64_t total_bytes);
  // Clears the line on a terminal.
  ~ByteProgress();
  ByteProgress(const ByteProgress&) = delete;
  ByteProgress& operator=(const ByteProgress&) = delete;

  // Counts bytes that were read or written, and prints the progress if the next output is due.
  void Add(uint64_t bytes);
  // Counts bytes that an earlier process wrote. They do not affect the rate.
  void Skip(uint64_t bytes);

 private:
  using Clock = std::chrono::steady_clock;

  std::string what_;
  const uint64_t total_bytes_;
  uint64_t skipped_bytes_ = 0;
  uint64_t done_bytes_ = 0;  // number of bytes so far, without the skipped bytes
  const bool on_terminal_;
  bool line_shown_ = false;
  const Clock::time_point begin_ = Clock::now();
  Clock::time_point next_;
};

}  // namespace dslaunch
