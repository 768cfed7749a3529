// Measures how long a node has sent nothing, excluding the time in which the session did not read
// from it. Pure: the caller passes the time.
#pragma once

#include <optional>

#include "base/deadline.h"

namespace dslaunch {

class SilenceWatch {
 public:
  // Called when the session waits for the node's next message: the node has just sent one, or its
  // output is read again.
  void Listen(Clock::time_point now) { since_ = last_seen_ = now; }

  // Called when the session stops reading from the node, because the terminal accepts no output.
  void Hold() { since_.reset(); }

  // Called for a sign of life other than a message; or if this process could not run until now, so
  // that messages of that time are still unread.
  void ResetDeadline(Clock::time_point now) {
    last_seen_ = now;
    if (since_) since_ = now;
  }

  // Returns zero while the session does not read from the node.
  Clock::duration SilentFor(Clock::time_point now) const {
    return since_ ? now - *since_ : Clock::duration::zero();
  }

  // Returns the time since the last sign of life, including time in which the session did not read
  // from the node.
  Clock::duration SinceLastSeen(Clock::time_point now) const { return now - last_seen_; }
  Clock::time_point last_seen() const { return last_seen_; }

 private:
  std::optional<Clock::time_point> since_;
  Clock::time_point last_seen_;
};

}  // namespace dslaunch
