// Defines Deadline, the only type that dslaunch uses to bound a wait. Every wait has one.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace dslaunch {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// Delay of a timer that shows that this process could not run, because it was stopped or the
// machine was suspended. Heartbeats that are missing at that moment may then be this process's
// fault rather than the peer's.
inline constexpr milliseconds kStall{500};

// Returns the wall clock in milliseconds since 1970. Only records for people use this time; no
// decision depends on it.
inline int64_t UnixMs(
    std::chrono::system_clock::time_point time = std::chrono::system_clock::now()) {
  return std::chrono::duration_cast<milliseconds>(time.time_since_epoch()).count();
}

// Returns the duration `us`, in microseconds, that another process reported. Cuts it to a limit
// that is longer than any job, but small enough to add and multiply durations without overflow.
inline std::chrono::microseconds ReportedMicroseconds(uint64_t us) {
  constexpr uint64_t kLongest = 1'000'000'000'000'000;
  return std::chrono::microseconds(std::min(us, kLongest));
}

// A point in monotonic time before which something must happen. A Deadline is always finite.
class Deadline {
 public:
  static Deadline After(milliseconds duration) { return Deadline(Clock::now() + duration); }
  static Deadline At(Clock::time_point when) { return Deadline(when); }

  Clock::time_point when() const { return when_; }
  bool Expired() const { return Clock::now() >= when_; }

  // Returns the time left; 0 after the deadline. Rounded up to whole milliseconds, so that poll()
  // never spins.
  milliseconds Left() const {
    return std::max(milliseconds(0), std::chrono::ceil<milliseconds>(when_ - Clock::now()));
  }
  // Returns Left() in milliseconds as a timeout for poll().
  int PollMs() const {
    return static_cast<int>(std::min<milliseconds::rep>(Left().count(), 1 << 30));
  }

  Deadline Earlier(Deadline other) const { return Deadline(std::min(when_, other.when_)); }

 private:
  explicit Deadline(Clock::time_point when) : when_(when) {}
  Clock::time_point when_;
};

}  // namespace dslaunch
