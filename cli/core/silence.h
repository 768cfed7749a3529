// For how long a node has sent nothing, without the time in which nothing was read from it.
// Pure: time is passed in.
#pragma once

#include <optional>

#include "base/deadline.h"

namespace dslaunch {

class SilenceWatch {
 public:
  // From now on the node's next message is awaited: it has just sent one, or its output is read
  // again.
  void Listen(Clock::time_point now) { since_ = last_seen_ = now; }

  // This side does not read from the node, because the terminal takes no output.
  void Hold() { since_.reset(); }

  // A sign of life besides its messages; or this process could not run until now, and messages of
  // that time are still unread.
  void ResetDeadline(Clock::time_point now) {
    last_seen_ = now;
    if (since_) since_ = now;
  }

  // Zero while nothing is read from the node.
  Clock::duration SilentFor(Clock::time_point now) const {
    return since_ ? now - *since_ : Clock::duration::zero();
  }

  // Since its last sign of life, also while nothing is read from it.
  Clock::duration SinceLastSeen(Clock::time_point now) const { return now - last_seen_; }
  Clock::time_point last_seen() const { return last_seen_; }

 private:
  std::optional<Clock::time_point> since_;
  Clock::time_point last_seen_;
};

}  // namespace dslaunch
