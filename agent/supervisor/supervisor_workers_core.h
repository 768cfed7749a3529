// Decides about the workers of a node, from their starts to the graceful kill that ends them with
// all processes that they started. Uses no clock, threads or I/O.
#pragma once

#include <sys/types.h>

#include <csignal>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "agent/supervisor/graceful_kill.h"
#include "agent/supervisor/left_process.h"
#include "agent/supervisor/supervisor_action.h"
#include "agent/supervisor/worker_table.h"
#include "base/deadline.h"
#include "base/error.h"
#include "base/os/subprocess.h"
#include "proto/supervisor.pb.h"

namespace dslaunch {

// A change of a worker's process: an exit, a stop or a continuation.
struct WorkerChange {
  WorkerEvent event = WorkerEvent::kExited;  // only kExited, kKilled, kStopped or kContinued
  int exit_code = 0;  // exit code if the worker exited; 0 if a signal ended it
  int signal = 0;     // signal that ended or stopped the worker; 0 if none did
  bool core_dumped = false;
  // Whether the cgroup counted an out-of-memory kill of the worker or of one of its children.
  bool out_of_memory = false;
};

// The states of a node's workers. Each event handler returns the actions to carry out. `now` never
// decreases.
class SupervisorWorkersCore {
 public:
  // `plant_early_reaped` enables a bug that tests of the simulator must find: as soon as a signal
  // is sent, every process counts as ended.
  explicit SupervisorWorkersCore(bool plant_early_reaped = false)
      : plant_early_reaped_(plant_early_reaped) {}

  void Configure(const pb::Configure& configure);
  // Starts workers. Every start fails if `is_refused`, or while the graceful kill runs.
  SupervisorActions OnSpawn(pb::SpawnWorkers spawn, bool is_refused);
  // Handles the result of MakeCgroup: the folder of the cgroup, or why there is none.
  SupervisorActions OnCgroup(const Result<std::string>& folder);
  // Handles a successful StartWorker.
  SupervisorActions OnStarted(uint32_t local_rank, pid_t pid);
  // Handles a failed StartWorker.
  SupervisorActions OnStartFailed(uint32_t local_rank, const SpawnFailure& failure);
  // Handles a worker that was reaped, stopped or continued.
  SupervisorActions OnChange(uint32_t local_rank, const WorkerChange& change);

  // --- Graceful kill of the workers ---

  // Handles the agent's request to end the workers. Begins the graceful kill unless it runs, and
  // ends its grace period if `kill_now`. The end of the graceful kill is reported to the agent.
  void OnStop(const pb::StopWorkers& stop);
  // Begins the graceful kill unless it runs.
  void BeginKill() { BeginKill(stop_signal_); }
  // Returns whether the graceful kill runs. While it runs, the caller must call OnLeft(): at once,
  // after every end of a process, and when Expires() returns true.
  bool stopping() const { return kill_.has_value(); }
  // Returns whether the last graceful kill has left processes that could not be ended.
  bool gave_up() const { return gave_up_; }
  // Returns the time of the next step of the graceful kill; nullopt if no step is due.
  std::optional<Clock::time_point> wake() const { return wake_; }
  // Returns whether the time wake() has passed, once for each wake().
  bool Expires(Clock::time_point now);
  // Handles the result of CountLeft.
  SupervisorActions OnLeft(LeftCount left, Clock::time_point now);
  // Handles the result of ListLeft.
  SupervisorActions OnLeftListed(const LeftProcesses& left);

 private:
  // Changes the state of a worker and returns the report.
  WorkerReport Step(uint32_t local_rank, WorkerEvent event);
  // Changes the states of all workers by an event that is never reported.
  void StepAll(WorkerEvent event);
  void BeginKill(int first_signal);
  SupervisorActions EndKill(const LeftProcesses& left);

  bool plant_early_reaped_;
  std::string job_id_;
  GracefulKillOptions options_;
  int stop_signal_ = SIGTERM;
  std::map<uint32_t, WorkerState> workers_;  // state of each worker, by local rank
  bool has_cgroup_ = false;
  bool watchdog_started_ = false;
  std::optional<GracefulKillState> kill_;
  std::optional<Clock::time_point> wake_;
  bool stop_requested_ = false;
  bool gave_up_ = false;
};

}  // namespace dslaunch
