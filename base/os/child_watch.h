// Waits for the exit of a child process, even where pidfds are not available. Kernels before 5.3 do
// not have them, and some seccomp profiles refuse them (EPERM in older versions of Docker).
#pragma once

#include <poll.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>

#include "base/deadline.h"
#include "base/os/pidfd.h"
#include "base/unique_fd.h"

namespace dslaunch {

// Detects the exit of a child of this process without reaping the child. Only the owner of this
// object may reap the child. Thread-safe.
class ChildWatch {
 public:
  explicit ChildWatch(pid_t child) : child_(child), pidfd_(PidfdOpen(child)) {}

  // Returns a descriptor that poll() reports as readable once the child has exited; -1 without
  // pidfds.
  int fd() const { return pidfd_.get(); }

  // Returns the timeout for poll() on fd(), in milliseconds. Without pidfds, it is short, so that
  // the caller checks Ended() often.
  int PollMs(Deadline deadline) const {
    return pidfd_.valid() ? deadline.PollMs() : std::min(deadline.PollMs(), kLookEveryMs);
  }

  // Returns whether the child has exited; true also if it was reaped.
  bool Ended() const {
    siginfo_t child = {};
    const int waited =
        waitid(P_PID, static_cast<id_t>(child_), &child, WEXITED | WNOHANG | WNOWAIT);
    return waited == 0 ? child.si_pid == child_ : errno == ECHILD;
  }

  // Waits until the child has exited. Returns false if the deadline passes first.
  bool AwaitEnd(Deadline deadline) const {
    while (!Ended()) {
      if (deadline.Expired()) return false;
      pollfd ended = {fd(), POLLIN, 0};
      poll(&ended, 1, PollMs(deadline));
    }
    return true;
  }

 private:
  static constexpr int kLookEveryMs = 10;

  pid_t child_;
  UniqueFd pidfd_;
};

}  // namespace dslaunch
