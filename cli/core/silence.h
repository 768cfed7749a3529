// Measures how long a node has sent nothing, excluding the time in which the session did not read
// from the node. The caller passes the time.
#pragma once

#include <optional>

#include "base/deadline.h"

namespace dslaunch {

class SilenceWatch {
 public:
  // Starts measuring, because the session waits for the node's next message: the node has just sent
  // one, or its output is read again.
  void Listen(Clock::time_point now) { since_ = last_seen_ = now; }

  // Stops measuring, because the session stops reading from the node while the terminal accepts no
  // output.
  void Hold() { since_.reset(); }

  // Restarts the measurement, because of a sign of life other than a message, or because this
  // process could not run until now and messages of that time are still unread.
  void ResetDeadline(Clock::time_point now) {
    last_seen_ = now;
    if (since_) since_ = now;
  }

  // Returns the time since the node's last sign of life, or zero while the session does not read
  // from the node.
  Clock::duration SilentFor(Clock::time_point now) const {
    return since_ ? now - *since_ : Clock::duration::zero();
  }

  // Returns the time since the node's last sign of life, including time in which the session did
  // not read from the node.
  Clock::duration SinceLastSeen(Clock::time_point now) const { return now - last_seen_; }
  Clock::time_point last_seen() const { return last_seen_; }

 private:
  std::optional<Clock::time_point> since_;
  Clock::time_point last_seen_;
};

}  // namespace dslaunch
