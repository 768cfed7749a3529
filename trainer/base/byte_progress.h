// Shows how far a long read or write is.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace dslaunch {

// Returns "1.2 GiB of 4.8 GiB, 612.0 MiB/s, 6 s left". Pure.
std::string ByteProgressText(uint64_t done_bytes, uint64_t total_bytes, double seconds);

// Prints to stderr: on a terminal one line that changes, elsewhere a line every 30 s. Prints
// nothing in the first second (elsewhere: 30 s), so that short work has no output.
class ByteProgress {
 public:
  // `what` begins the line: "out: ".
  ByteProgress(std::string what, uint64_t total_bytes);
  // Clears the line of a terminal.
  ~ByteProgress();
  ByteProgress(const ByteProgress&) = delete;
  ByteProgress& operator=(const ByteProgress&) = delete;

  void Add(uint64_t bytes);
  // Counts bytes that an earlier process wrote, without effect on the rate.
  void Skip(uint64_t bytes);

 private:
  using Clock = std::chrono::steady_clock;

  std::string what_;
  const uint64_t total_bytes_;
  uint64_t skipped_bytes_ = 0;
  uint64_t done_bytes_ = 0;  // without the skipped ones
  const bool on_terminal_;
  bool line_shown_ = false;
  const Clock::time_point begin_ = Clock::now();
  Clock::time_point next_;
};

}  // namespace dslaunch
