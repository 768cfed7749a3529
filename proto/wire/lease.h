// How long a node works without a renewal by its front end. The caller passes the time, by a clock
// that runs while the machine is suspended, because other nodes draw conclusions from this node's
// silence during that time. Thread-safe: renewals count on arrival, even while the agent's loop
// waits for a disk.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

#include "base/deadline.h"
#include "base/mutex.h"

namespace dslaunch {

// CLOCK_BOOTTIME. Clock, in contrast, stops while the machine is suspended.
struct BootClock {
  using duration = std::chrono::microseconds;
  using rep = duration::rep;
  using period = duration::period;
  using time_point = std::chrono::time_point<BootClock>;
  static constexpr bool is_steady = true;
  static time_point now();
};

class Lease {
 public:
  using Time = BootClock::time_point;

  struct Terms {
    milliseconds length{0};  // 0: the lease never ends
    milliseconds look_every{500};
    // A renewal cannot extend the lease by more than this beyond the newest answer of this node
    // that the front end had received when it sent the renewal.
    milliseconds prompt{0};
  };

  // Starts the lease at `now`.
  Lease(const Terms& terms, Time now)
      : terms_(terms), begun_(now), last_seen_(now), renewed_(now), looked_(now) {}
  // Changes the terms, also for earlier renewals.
  void SetTerms(const Terms& terms);
  // Restarts the lease at `now`, like a renewal.
  void Begin(Time now);

  // Handles a renewal by the front end. `last_seen_us` is the newest answer to a renewal that it
  // had received; nullopt: only the start of this lease. Even a delayed renewal therefore cannot
  // extend the lease too far. Returns the answer.
  uint64_t Renew(std::optional<uint64_t> last_seen_us, Time now);

  // Returns the time from which the lease's length counts; it equals that of the newest renewal.
  Time renewed() const;

  // Returns the remaining time; nullopt if the lease never ends, 0 if it is over. Call it every
  // `look_every`, from any thread. If a call is late by more than kStall and finds the lease over,
  // this process could not run: renewals may be unread, or the front end on the same machine could
  // not run either. Then kCatchUp remains, once after each renewal.
  std::optional<milliseconds> Left(Time now);

  static constexpr milliseconds kCatchUp{3'000};

 private:
  mutable Mutex mutex_;
  Terms terms_ DSL_GUARDED_BY(mutex_);
  Time begun_ DSL_GUARDED_BY(mutex_);
  // Newest value reported by the front end's renewals.
  Time last_seen_ DSL_GUARDED_BY(mutex_);
  Time renewed_ DSL_GUARDED_BY(mutex_);
  Time looked_ DSL_GUARDED_BY(mutex_);
  Time catch_up_until_ DSL_GUARDED_BY(mutex_);
  bool caught_up_ DSL_GUARDED_BY(mutex_) = false;  // since the newest renewal
};

}  // namespace dslaunch
