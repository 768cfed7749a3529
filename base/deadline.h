// Defines the only type of deadlines. Every wait in dslaunch has one.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace dslaunch {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// If a timer fires this much late, this process did not run, because it was stopped or the machine
// was suspended. Missing heartbeats found at that moment may be this process's fault rather than
// the peer's.
inline constexpr milliseconds kStall{500};

// Returns the wall clock in milliseconds since 1970. It is only for records that people read; no
// decision depends on it.
inline int64_t UnixMs(
    std::chrono::system_clock::time_point time = std::chrono::system_clock::now()) {
  return std::chrono::duration_cast<milliseconds>(time.time_since_epoch()).count();
}

// Returns a duration that another process reported, limited so that it is longer than any job but
// can be added and multiplied without overflow.
inline std::chrono::microseconds ReportedMicroseconds(uint64_t us) {
  constexpr uint64_t kLongest = 1'000'000'000'000'000;
  return std::chrono::microseconds(std::min(us, kLongest));
}

// A point in monotonic time before which something must happen. There is no unlimited Deadline.
class Deadline {
 public:
  static Deadline After(milliseconds duration) { return Deadline(Clock::now() + duration); }
  static Deadline At(Clock::time_point when) { return Deadline(when); }

  Clock::time_point when() const { return when_; }
  bool Expired() const { return Clock::now() >= when_; }

  // Returns the time left, rounded up to whole milliseconds so that poll() never spins; 0 once
  // expired.
  milliseconds Left() const {
    return std::max(milliseconds(0), std::chrono::ceil<milliseconds>(when_ - Clock::now()));
  }
  // Returns Left() as a timeout for poll().
  int PollMs() const {
    return static_cast<int>(std::min<milliseconds::rep>(Left().count(), 1 << 30));
  }

  Deadline Earlier(Deadline other) const { return Deadline(std::min(when_, other.when_)); }

 private:
  explicit Deadline(Clock::time_point when) : when_(when) {}
  Clock::time_point when_;
};

}  // namespace dslaunch
