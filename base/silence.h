// For how long no heartbeat from a node, told apart from the time in which nobody listened.
// Pure: time comes in.
#pragma once

#include <optional>

#include "base/deadline.h"

namespace dslaunch {

class SilenceWatch {
 public:
  // From now on the next word of the node is awaited: it has just been heard, or its output is
  // taken again.
  void Listen(Clock::time_point now) { since_ = last_seen_ = now; }

  // Our own side does not read what the node says, because the terminal does not take it.
  void Hold() { since_.reset(); }

  // This process stood still until now; what was said meanwhile is yet to be read.
  void ResetDeadline(Clock::time_point now) {
    last_seen_ = now;
    if (since_) since_ = now;
  }

  // Nothing while nobody listens.
  Clock::duration SilentFor(Clock::time_point now) const {
    return since_ ? now - *since_ : Clock::duration::zero();
  }

  // Since it was last heard, also while nobody listens any more.
  Clock::duration SinceLastSeen(Clock::time_point now) const { return now - last_seen_; }

 private:
  std::optional<Clock::time_point> since_;
  Clock::time_point last_seen_;
};

}  // namespace dslaunch
