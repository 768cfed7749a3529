// Runs the watchdog: a small process that sleeps while the supervisor or the agent lives, and ends
// what the workers leave behind if both are killed at the same time.
#pragma once

#include <sys/types.h>

#include "agent/supervisor/graceful_kill.h"
#include "agent/supervisor/orphan_sweep.h"
#include "base/unique_fd.h"

namespace dslaunch {

// The supervisor's handle of its watchdog. The watchdog wakes at end of file on a pipe whose other
// end only supervisor and agent hold, so neither has to do anything, whichever dies first.
// Single-threaded.
class Watchdog {
 public:
  // Creates the pipe. Precondition: the agent is not forked yet. Returns false with errno set on
  // failure.
  bool Open();

  // Makes the calling agent keep the watchdog asleep while the agent lives, as the supervisor does.
  void HoldFromAgent();

  // Forks the watchdog. Preconditions: called once, from a process with one thread. If the fork
  // fails, the other calls do nothing. `orphans` has the current groups, which AddGroup and
  // ForgetGroups update.
  void Start(Orphans orphans, const GracefulKillOptions& graceful_kill);

  // AddGroup adds the group of a worker that was started. ForgetGroups forgets all groups when no
  // process of any worker is left.
  void AddGroup(pid_t group);
  void ForgetGroups();

  // Kills and reaps the watchdog. Called when nothing is left for the watchdog to do.
  void End();

  // Records that the watchdog was reaped.
  void Reaped() { pid_ = -1; }

  bool started() const { return started_; }

  // Returns the watchdog's pid; -1 if there is no watchdog.
  pid_t pid() const { return pid_; }

 private:
  void Notify(pid_t group);

  UniqueFd sleeper_end_;
  UniqueFd waker_end_;
  bool started_ = false;
  pid_t pid_ = -1;
};

}  // namespace dslaunch
