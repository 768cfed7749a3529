// For how long a node goes on without a word of its front end. Time comes in, by a clock that goes
// on while the machine is suspended: what others conclude from this node's silence must hold here.
// Thread-safe: words are counted when they come, also while the agent's loop waits for a disk.
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
    // No word is worth more than this beyond what the front end had heard of this node when it said
    // it.
    milliseconds prompt{0};
  };

  // Begins anew at `now`.
  Lease(const Terms& terms, Time now)
      : terms_(terms), begun_(now), last_seen_(now), renewed_(now), looked_(now) {}
  // Also for the words that came before.
  void SetTerms(const Terms& terms);

  // A word of the front end came. `last_seen_us` is the newest answer that it had got to such a
  // word; none: it knows no more than that this lease began. However long the word was on its way,
  // the lease ends in time. Returns the answer.
  uint64_t Renew(std::optional<uint64_t> last_seen_us, Time now);

  // To be called every `look_every`, from whatever thread. nullopt: it never ends; 0: it is over.
  // Who finds it over and looks late stood still: the front end's words may wait to be read, or it
  // stood still on the same machine. Then there is kCatchUp left, once after each word.
  std::optional<milliseconds> Left(Time now);

  static constexpr milliseconds kCatchUp{3'000};

 private:
  Mutex mutex_;
  Terms terms_ DSL_GUARDED_BY(mutex_);
  const Time begun_;
  // By the front end, as its words said: the newest.
  Time last_seen_ DSL_GUARDED_BY(mutex_);
  Time renewed_ DSL_GUARDED_BY(mutex_);
  Time looked_ DSL_GUARDED_BY(mutex_);
  Time catch_up_until_ DSL_GUARDED_BY(mutex_);
  bool caught_up_ DSL_GUARDED_BY(mutex_) = false;  // since the newest word
};

}  // namespace dslaunch
