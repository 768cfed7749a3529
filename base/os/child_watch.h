// Waiting for the end of a child, also where pidfds are refused: by kernels before 5.3, and by
// seccomp profiles that do not know them (EPERM in older Dockers).
#pragma once

#include <poll.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>

#include "base/deadline.h"
#include "base/os/pidfd.h"
#include "base/unique_fd.h"

namespace dslaunch {

// Watches for the end of a child of this process, which only the owner of this object may reap.
// Reaps nothing itself. Thread-safe.
class ChildWatch {
 public:
  explicit ChildWatch(pid_t child) : child_(child), pidfd_(PidfdOpen(child)) {}

  // For poll(), together with PollMs: readable once the child has ended. Where it is -1, poll()
  // ends early instead, and Ended() is to be asked.
  int fd() const { return pidfd_.get(); }
  int PollMs(Deadline deadline) const {
    return pidfd_.valid() ? deadline.PollMs() : std::min(deadline.PollMs(), kLookEveryMs);
  }

  // It is a zombie, or was reaped.
  bool Ended() const {
    siginfo_t child = {};
    const int waited =
        waitid(P_PID, static_cast<id_t>(child_), &child, WEXITED | WNOHANG | WNOWAIT);
    return waited == 0 ? child.si_pid == child_ : errno == ECHILD;
  }

  // False when the deadline came first.
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
