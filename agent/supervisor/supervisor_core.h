// The supervisor's state machine: its response to each request of its agent, end of a child, signal
// and timeout. Pure: no clock, threads or I/O; agent/supervisor/supervisor.cc, tests and the
// simulator carry out its actions.
//
//   serving -> ending: graceful kill -> agent's end -> its last bytes -> finished
//
// While it serves, the graceful kill also runs for StopWorkers and when the front end's lease
// expires. No process is started while it runs. Every end of the supervisor goes through
// BeginEnding; Advance takes each further step as soon as its condition holds.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "agent/supervisor/graceful_kill.h"
#include "agent/supervisor/left_process.h"
#include "agent/supervisor/worker_table.h"
#include "base/deadline.h"
#include "base/error.h"
#include "base/os/subprocess.h"
#include "proto/supervisor.pb.h"

namespace dslaunch {

// The supervisor's actions. They are carried out in order. The answer to an action is passed to the
// core, and the resulting actions are carried out, before the next action (except for StartWorker).
namespace supervisor_action {

struct SendToAgent {
  pb::SupervisorEvent event;
};
// The answer is OnCgroup().
struct MakeCgroup {
  std::string job_id;
};
struct StartWatchdog {
  std::string job_id;
  GracefulKillOptions graceful_kill;
};
// Starts a worker in a process group of its own. The answer is OnStarted() or OnStartFailed() when
// the result is known; many workers start concurrently, however long each takes.
struct StartWorker {
  pb::WorkerSpec spec;
  std::shared_ptr<const pb::SpawnWorkers> shared;  // settings that all workers share
};
// Sends a signal to each running worker, or to one of them, but not to its children.
struct SignalWorkers {
  int signal = 0;
  std::optional<uint32_t> local_rank = {};  // nullopt: all
};
// Reaps ended children, then counts the processes left: descendants of the supervisor and members
// of the workers' cgroup, except agent and watchdog. The answer is OnLeft().
struct CountLeft {};
// Sends `signal`, then SIGCONT, to the counted processes that are in `targets`.
struct SignalLeft {
  int signal = 0;
  KillTargets targets = KillTargets::kAll;
};
// Sends SIGKILL to the counted processes that are in `targets`.
struct KillLeft {
  KillTargets targets = KillTargets::kAll;
};
// Describes the processes that CountLeft counts. The answer is OnLeftListed().
struct ListLeft {};
// No process of the workers is left: removes their cgroup and forgets their group numbers, which
// may be reused.
struct ForgetWorkers {};
// Makes the agent see end of file from the front end.
struct CloseInbound {};
// Rejects a returning front end from now on.
struct RefuseFrontEnd {};
struct KillAgent {};  // sends SIGKILL
struct Print {        // prints to stderr
  std::string line;
};
// The last action: exit with this code, and print this line to stderr unless it is empty.
struct Finish {
  int exit_code = 0;
  std::string line;
};

}  // namespace supervisor_action

struct SupervisorAction {
  std::variant<supervisor_action::SendToAgent, supervisor_action::MakeCgroup,
               supervisor_action::StartWatchdog, supervisor_action::StartWorker,
               supervisor_action::SignalWorkers, supervisor_action::CountLeft,
               supervisor_action::SignalLeft, supervisor_action::KillLeft,
               supervisor_action::ListLeft, supervisor_action::ForgetWorkers,
               supervisor_action::CloseInbound, supervisor_action::RefuseFrontEnd,
               supervisor_action::KillAgent, supervisor_action::Print, supervisor_action::Finish>
      what;
  const char* reason = "";  // a static string
};
using SupervisorActions = std::vector<SupervisorAction>;

// A change of a worker's state.
struct WorkerChange {
  WorkerEvent event = WorkerEvent::kExited;  // kExited, kKilled, kStopped or kContinued
  int exit_code = 0;                         // exit code, if the worker exited
  int signal = 0;                            // signal that ended or stopped it
  bool core_dumped = false;
  // True if the cgroup counted an out-of-memory kill of it or of one of its children.
  bool out_of_memory = false;
};

// How the agent ended.
struct AgentEnd {
  int code = 0;  // exit code or signal
  bool by_signal = false;
};

class SupervisorCore {
 public:
  struct Options {
    pid_t agent_pid = 0;  // pid in the message about the agent's end
    // In a Slurm step, a terminating signal is a request to end the job: the agent stops the job in
    // order, and supervisor and agent survive the signal until the front end, its lease or SIGKILL
    // ends them.
    bool in_step = false;
    // Test only: a planted bug that the simulator must find. As soon as a signal is sent, every
    // process counts as ended.
    bool plant_early_reaped = false;
  };

  // Time for the agent to exit by itself, and again for it to die from SIGKILL.
  static constexpr milliseconds kAgentEndLimit{2'000};
  // Time for the front end to return after its connection broke, unless the agent learns earlier
  // that it will not. A login takes a fraction of a second; ranks should not run longer without a
  // front end.
  static constexpr milliseconds kResumeLimit{4'000};
  // Time for the agent's last bytes if the front end reads slowly.
  static constexpr milliseconds kDrainLimit{2'000};

  explicit SupervisorCore(const Options& options) : options_(options) {}

  // Event handlers. Each returns the actions to take. `now` never decreases.

  // Called for a request of the agent, and when the socket for requests was closed or received an
  // invalid message.
  SupervisorActions OnRequest(pb::SupervisorRequest request, Clock::time_point now);
  SupervisorActions OnControlLost(Clock::time_point now);
  // Called at end of file from the front end, or when a write to it has failed.
  SupervisorActions OnFrontEndGone(Clock::time_point now);
  // Called when the connection to a front end that can resume its stream has broken, and when it is
  // restored.
  SupervisorActions OnConnectionBroken(Clock::time_point now);
  SupervisorActions OnConnectionResumed();
  // Called when the front end has received all that the agent sent, and nothing follows.
  SupervisorActions OnOutboundEnded(Clock::time_point now);
  // Called when the supervisor has received a signal.
  SupervisorActions OnSignal(int signal, Clock::time_point now);
  // Called for a reaped child: the first or second if it was a worker or the agent, and then
  // OnReaped(), even if it was neither.
  SupervisorActions OnWorkerChange(uint32_t local_rank, const WorkerChange& change);
  SupervisorActions OnAgentEnd(AgentEnd end);
  SupervisorActions OnReaped(Clock::time_point now);
  // Called at wake() or later; nullopt: never.
  SupervisorActions OnTime(Clock::time_point now);
  std::optional<Clock::time_point> wake() const;

  // Called with the answers to actions.
  SupervisorActions OnCgroup(const Result<std::string>& folder);
  SupervisorActions OnStarted(uint32_t local_rank, pid_t pid);
  SupervisorActions OnStartFailed(uint32_t local_rank, const SpawnFailure& failure);
  SupervisorActions OnLeft(LeftCount left, Clock::time_point now);
  SupervisorActions OnLeftListed(const LeftProcesses& left, Clock::time_point now);

 private:
  enum class Why { kFrontEndGone, kAgentEnded, kAgentSilent, kSignal };

  // A time limit that begins once and expires once.
  class Limit {
   public:
    void BeginUntil(Clock::time_point end) {
      if (std::exchange(begun_, true)) return;
      end_ = end;
    }
    bool Expires(Clock::time_point now) {
      if (!end_ || now < *end_) return false;
      end_.reset();
      return true;
    }
    std::optional<Clock::time_point> end() const { return end_; }

   private:
    bool begun_ = false;
    std::optional<Clock::time_point> end_;
  };

  void OnSpawn(pb::SpawnWorkers& spawn);
  void OnAlive(const pb::AgentAlive& alive, Clock::time_point now);
  void Configure(const pb::Configure& configure, Clock::time_point now);
  void Step(uint32_t local_rank, WorkerState& state, const WorkerChange& change);

  // Watch the agent and the front end's lease. When the lease expires, the agent acts; the
  // supervisor acts if the agent is stopped.
  void WatchAgent();
  void OnWatch(Clock::time_point now);

  void BeginEnding(Why why, const char* reason, Clock::time_point now);
  void StartGracefulKill(bool kill_now, int first_signal = 0);  // 0: stop_signal_
  void EndGracefulKill(const LeftProcesses& left);
  // Takes every step that is possible now. Called after every change that may matter.
  void Advance(Clock::time_point now);
  void KillAgent(const char* reason, Clock::time_point now);
  void Finish();
  std::string AgentFailure() const;  // empty: the agent succeeded

  template <class What>
  void Act(What what, const char* reason) {
    out_.push_back({std::move(what), reason});
  }
  void DeclareFrontEndLost(const char* reason, Clock::time_point now);
  SupervisorActions TakeActions();

  Options options_;
  std::string job_id_;
  GracefulKillOptions graceful_kill_options_;
  int stop_signal_ = SIGTERM;
  milliseconds agent_dead_{0};
  std::map<uint32_t, WorkerState> workers_;  // workers by local_rank
  bool has_cgroup_ = false;
  bool watchdog_started_ = false;

  std::optional<GracefulKillState> graceful_kill_;
  std::optional<Clock::time_point> graceful_kill_wake_;
  bool count_wanted_ = false;  // number of processes left
  bool count_asked_ = false;   // CountLeft was sent and not yet answered
  bool stop_requested_ = false;
  bool gave_up_ = false;  // some processes could not be ended

  Clock::time_point last_seen_;
  std::optional<Clock::time_point> watch_at_;
  // The end of the lease, as reported by the agent; nullopt if there is no lease.
  std::optional<Clock::time_point> lease_end_;
  bool lease_is_over_ = false;
  bool detached_ = false;
  // Set while the connection to the front end is broken.
  std::optional<Clock::time_point> resume_by_;

  std::optional<Why> ending_;  // the first cause
  int signal_ = 0;
  std::optional<AgentEnd> agent_end_;
  bool agent_end_handled_ = false;
  bool killed_agent_ = false;
  bool agent_unkillable_ = false;
  bool outbound_ended_ = false;
  bool finished_ = false;
  Limit agent_limit_;
  Limit kill_limit_;
  Limit drain_limit_;

  SupervisorActions out_;
};

}  // namespace dslaunch
