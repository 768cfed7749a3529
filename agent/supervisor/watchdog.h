// The watchdog: a small process that sleeps while the supervisor or the agent lives, and ends what
// the workers leave behind when both are killed at the same instant.
#pragma once

#include <sys/types.h>

#include "agent/supervisor/graceful_kill.h"
#include "agent/supervisor/orphan_sweep.h"
#include "base/unique_fd.h"

namespace dslaunch {

// The supervisor's hold on its watchdog. It wakes by end of file on a pipe that only supervisor and
// agent hold the other end of, so neither has to do anything for it, whichever of them dies first.
// Single-threaded.
class Watchdog {
 public:
  // Makes the pipe; before the agent is forked. False with errno set when that fails.
  bool Open();

  // In the agent: from now on its life keeps the watchdog asleep, too.
  void HoldFromAgent();

  // Forks the watchdog, once, from a process with one thread. Without one (fork failed) the other
  // calls do nothing. `orphans` is as known now; AddGroup and ForgetGroups update its groups.
  void Start(Orphans orphans, const GracefulKillOptions& graceful_kill);

  // A worker was started in a group of its own; nothing of any worker is left any more.
  void AddGroup(pid_t group);
  void ForgetGroups();

  // Ends and reaps it: nothing is left for it to do.
  void End();

  // What was reaped was the watchdog.
  void Reaped() { pid_ = -1; }

  bool started() const { return started_; }

  // -1: there is none.
  pid_t pid() const { return pid_; }

 private:
  void Notify(pid_t group);

  UniqueFd sleeper_end_;
  UniqueFd waker_end_;
  bool started_ = false;
  pid_t pid_ = -1;
};

}  // namespace dslaunch
