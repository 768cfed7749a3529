// The watchdog: a small process that sleeps while the supervisor or the agent lives, and ends what
// the workers leave behind if both are killed at the same time.
#pragma once

#include <sys/types.h>

#include "agent/supervisor/graceful_kill.h"
#include "agent/supervisor/orphan_sweep.h"
#include "base/unique_fd.h"

namespace dslaunch {

// The supervisor's handle of its watchdog. The watchdog wakes by end of file on a pipe whose other
// end only supervisor and agent hold, so neither has to do anything, whichever dies first.
// Single-threaded.
class Watchdog {
 public:
  // Creates the pipe. Call it before the agent is forked. Returns false with errno set on failure.
  bool Open();

  // Makes the calling agent, too, keep the watchdog asleep while it lives.
  void HoldFromAgent();

  // Forks the watchdog. Precondition: called once, from a process with one thread. If the fork
  // fails, the other calls do nothing. `orphans` has the current groups; AddGroup and ForgetGroups
  // update them.
  void Start(Orphans orphans, const GracefulKillOptions& graceful_kill);

  // Adds the group of a worker that was started; and forgets all groups when no process of any
  // worker is left.
  void AddGroup(pid_t group);
  void ForgetGroups();

  // Kills and reaps the watchdog when there is nothing left for it to do.
  void End();

  // Reports that the watchdog was reaped.
  void Reaped() { pid_ = -1; }

  bool started() const { return started_; }

  // -1 if there is no watchdog.
  pid_t pid() const { return pid_; }

 private:
  void Notify(pid_t group);

  UniqueFd sleeper_end_;
  UniqueFd waker_end_;
  bool started_ = false;
  pid_t pid_ = -1;
};

}  // namespace dslaunch
