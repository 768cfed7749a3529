// Runs the watchdog, a small process that sleeps while the supervisor or the agent lives. If both
// are killed at the same time, it ends the processes that the workers leave.
#pragma once

#include <sys/types.h>

#include "agent/supervisor/graceful_kill.h"
#include "agent/supervisor/orphan_sweep.h"
#include "base/unique_fd.h"

namespace dslaunch {

// The supervisor's handle of its watchdog. The watchdog wakes at end of file on a pipe. Only
// supervisor and agent have the pipe's other end open, so neither has to notify the watchdog,
// whichever dies first. Single-threaded.
class Watchdog {
 public:
  // Creates the pipe. Returns false with errno set on failure. Precondition: the agent is not
  // forked yet.
  bool Open();

  // Keeps the pipe open in the calling agent, so that the watchdog sleeps while the agent lives.
  void HoldFromAgent();

  // Forks the watchdog. If the fork fails, the other calls do nothing. `orphans` contains the
  // current groups, which AddGroup() and ForgetGroups() update. Preconditions: called once, from a
  // process with one thread.
  void Start(Orphans orphans, const GracefulKillOptions& graceful_kill);

  // Adds the group of a worker that was started.
  void AddGroup(pid_t group);
  // Removes all groups. Call this when no process of any worker is left.
  void ForgetGroups();

  // Kills and reaps the watchdog, because no processes are left that it would have to end.
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
