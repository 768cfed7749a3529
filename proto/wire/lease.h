// Computes how long a node keeps working without a renewal by its front end. The caller passes the
// time from a clock that also runs while the machine is suspended, because other nodes act on this
// node's silence during that time. Thread-safe: a renewal counts when it arrives, even while the
// agent's loop waits for a disk.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

#include "base/deadline.h"
#include "base/mutex.h"

namespace dslaunch {

// The clock CLOCK_BOOTTIME, which, unlike Clock, runs while the machine is suspended.
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
    milliseconds length{0};  // duration of the lease; 0 if it never ends
    milliseconds look_every{500};
    // Maximum time by which a renewal extends the lease, counted from the newest answer of this
    // node that the front end had received when it sent the renewal.
    milliseconds prompt{0};
  };

  // Makes a lease that starts at `now`.
  Lease(const Terms& terms, Time now)
      : terms_(terms), begun_(now), last_seen_(now), renewed_(now), looked_(now) {}
  // Changes the terms, also for earlier renewals.
  void SetTerms(const Terms& terms);
  // Restarts the lease at `now`, with the same effect as a renewal.
  void Begin(Time now);

  // Handles a renewal by the front end and returns the answer. `last_seen_us` is the newest answer
  // that the front end had received; nullopt if it has received only the start of this lease.
  // Because the lease is extended from that answer, a delayed renewal cannot extend it too far.
  uint64_t Renew(std::optional<uint64_t> last_seen_us, Time now);

  // Returns the time of the newest renewal, from which the lease's length counts.
  Time renewed() const;

  // Returns the remaining time: nullopt if the lease never ends, 0 if it has expired. Call this
  // every `look_every`, from any thread.
  //
  // If a call is late by more than kStall (base/deadline.h) and finds the lease expired, this
  // process could not run. It may then have unread renewals, or a front end on the same machine
  // could not run either. So kCatchUp remains, once after each renewal.
  std::optional<milliseconds> Left(Time now);

  static constexpr milliseconds kCatchUp{3'000};

 private:
  mutable Mutex mutex_;
  Terms terms_ DSL_GUARDED_BY(mutex_);
  Time begun_ DSL_GUARDED_BY(mutex_);
  // The newest answer that the front end had received when it sent its renewals, as a time.
  Time last_seen_ DSL_GUARDED_BY(mutex_);
  Time renewed_ DSL_GUARDED_BY(mutex_);
  Time looked_ DSL_GUARDED_BY(mutex_);
  Time catch_up_until_ DSL_GUARDED_BY(mutex_);
  // True if kCatchUp was granted since the newest renewal.
  bool caught_up_ DSL_GUARDED_BY(mutex_) = false;
};

}  // namespace dslaunch
