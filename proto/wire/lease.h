// For how long a node works without a renewal by its front end. Time comes in, by a clock that runs
// while the machine is suspended: what others conclude from this node's silence must hold here.
// Thread-safe: renewals count when they arrive, also while the agent's loop waits for a disk.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

#include "base/deadline.h"
#include "base/mutex.h"

namespace dslaunch {

// CLOCK_BOOTTIME; Clock stands still with a machine that is suspended.
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
    milliseconds length{0};  // 0: it never ends
    milliseconds look_every{500};
    // No renewal extends the lease by more than this beyond the newest answer of this node that the
    // front end had when it sent the renewal.
    milliseconds prompt{0};
  };

  // Begins at `now`.
  Lease(const Terms& terms, Time now)
      : terms_(terms), begun_(now), last_seen_(now), renewed_(now), looked_(now) {}
  // Also for the renewals that came before.
  void SetTerms(const Terms& terms);
  // Begins again at `now`, as good as a renewal.
  void Begin(Time now);

  // A renewal by the front end arrived. `last_seen_us` is the newest answer to a renewal that it
  // had; none: it knows only that this lease began. However long the renewal was on its way, the
  // lease ends in time. Returns the answer.
  uint64_t Renew(std::optional<uint64_t> last_seen_us, Time now);

  // Since when the lease's length counts: as good as the newest renewal.
  Time renewed() const;

  // To be called every `look_every`, from whatever thread. nullopt: it never ends; 0: it is over.
  // A caller that finds it over and looks later than kStall could not run: renewals may be unread,
  // or the front end on the same machine could not run either. Then kCatchUp is left, once after
  // each renewal.
  std::optional<milliseconds> Left(Time now);

  static constexpr milliseconds kCatchUp{3'000};

 private:
  mutable Mutex mutex_;
  Terms terms_ DSL_GUARDED_BY(mutex_);
  Time begun_ DSL_GUARDED_BY(mutex_);
  // By the front end, as its words said: the newest.
  Time last_seen_ DSL_GUARDED_BY(mutex_);
  Time renewed_ DSL_GUARDED_BY(mutex_);
  Time looked_ DSL_GUARDED_BY(mutex_);
  Time catch_up_until_ DSL_GUARDED_BY(mutex_);
  bool caught_up_ DSL_GUARDED_BY(mutex_) = false;  // since the newest word
};

}  // namespace dslaunch
