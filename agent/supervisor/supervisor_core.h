// Implements the supervisor's state machine, which decides the response to each request of the
// agent, end of a child, signal and timeout. Its member SupervisorWorkersCore decides about the
// workers. Uses no clock, threads or I/O; agent/supervisor/supervisor.cc, tests and the simulator
// carry out its actions.
//
//   serving -> ending: graceful kill -> agent's end -> its last bytes -> finished
//
// While the supervisor serves, the graceful kill also runs for StopWorkers and when the front end's
// lease expires. Every end of the supervisor goes through BeginEnding; Advance takes each further
// step as soon as its condition holds.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <utility>

#include "agent/supervisor/graceful_kill.h"
#include "agent/supervisor/left_process.h"
#include "agent/supervisor/supervisor_action.h"
#include "agent/supervisor/supervisor_workers_core.h"
#include "base/deadline.h"
#include "proto/supervisor.pb.h"

namespace dslaunch {

// The exit of the agent.
struct AgentEnd {
  int code = 0;  // exit code, or signal if `by_signal`
  bool by_signal = false;
};

class SupervisorCore {
 public:
  struct Options {
    pid_t agent_pid = 0;  // agent's pid, for the message about its end
    // Whether the supervisor runs in a Slurm step, where a terminating signal is a request to end
    // the job. The agent then stops the job in order, and supervisor and agent survive the signal
    // until the front end, its lease or SIGKILL ends them.
    bool in_step = false;
    // For tests only: a bug that the simulator must find. If set, every process counts as ended as
    // soon as a signal is sent.
    bool plant_early_reaped = false;
  };

  // Limit for the agent to exit by itself, and again for it to die from SIGKILL.
  static constexpr milliseconds kAgentEndLimit{2'000};
  // Limit for the front end to return after its connection broke, unless the agent reports earlier
  // that it will not. A login takes a fraction of a second, and ranks should not run longer without
  // a front end.
  static constexpr milliseconds kResumeLimit{4'000};
  // Limit for sending the agent's last bytes, in case the front end reads slowly.
  static constexpr milliseconds kDrainLimit{2'000};

  explicit SupervisorCore(const Options& options)
      : options_(options), workers_(options.plant_early_reaped) {}

  // Returns the object that handles starts and changes of workers. The caller passes these events
  // to it and carries out the actions that it returns.
  SupervisorWorkersCore& workers() { return workers_; }

  // The functions below handle events. Each returns the actions to carry out. `now` never
  // decreases.

  // Handles a request of the agent.
  SupervisorActions OnRequest(pb::SupervisorRequest request, Clock::time_point now);
  // Handles the end of the socket for requests, or an invalid message on it.
  SupervisorActions OnControlLost(Clock::time_point now);
  // Handles end of file from the front end, or a failed write to it.
  SupervisorActions OnFrontEndGone(Clock::time_point now);
  // Handles the loss of a connection whose stream the front end can resume.
  SupervisorActions OnConnectionBroken(Clock::time_point now);
  // Handles the restored connection.
  SupervisorActions OnConnectionResumed();
  // Records that the front end has received all bytes of the agent, and that no more follow.
  SupervisorActions OnOutboundEnded(Clock::time_point now);
  // Handles a signal that the supervisor has received.
  SupervisorActions OnSignal(int signal, Clock::time_point now);
  // Handles the exit of the agent, which was reaped.
  SupervisorActions OnAgentEnd(AgentEnd end);
  // Continues after a child was reaped: the agent, a worker or another process. Must be called
  // after OnAgentEnd() or SupervisorWorkersCore::OnChange() for that child.
  SupervisorActions OnReaped(Clock::time_point now);
  // Checks the time limits. Called at wake() or later.
  SupervisorActions OnTime(Clock::time_point now);
  // Returns the time of the next time limit; nullopt if there is none.
  std::optional<Clock::time_point> wake() const;

  // Handles the result of CountLeft.
  SupervisorActions OnLeft(LeftCount left, Clock::time_point now);
  // Handles the result of ListLeft.
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

  void OnAlive(const pb::AgentAlive& alive, Clock::time_point now);
  void Configure(const pb::Configure& configure, Clock::time_point now);

  // Sets the time of the next check of the agent's heartbeat and the lease. When the lease expires,
  // the agent acts; if the agent is stopped, the supervisor acts.
  void WatchAgent();
  void OnWatch(Clock::time_point now);

  void BeginEnding(Why why, const char* reason, Clock::time_point now);
  // Takes every step that is possible now. Called after every change that may make a step possible.
  void Advance(Clock::time_point now);
  void KillAgent(const char* reason, Clock::time_point now);
  void Finish();
  // Returns the reason of the agent's failure; empty if the agent succeeded.
  std::string AgentFailure() const;

  template <class What>
  void Act(What what, const char* reason) {
    out_.push_back({std::move(what), reason});
  }
  void DeclareFrontEndLost(const char* reason, Clock::time_point now);
  void Append(SupervisorActions actions);
  SupervisorActions TakeActions();

  Options options_;
  SupervisorWorkersCore workers_;
  bool count_wanted_ = false;  // whether the number of processes left is needed
  bool count_asked_ = false;   // whether CountLeft was sent and has no result yet

  milliseconds agent_dead_{0};
  Clock::time_point last_seen_;
  std::optional<Clock::time_point> watch_at_;
  // End of the lease as the agent has reported it; nullopt if there is no lease.
  std::optional<Clock::time_point> lease_end_;
  bool lease_is_over_ = false;
  bool detached_ = false;
  // Limit for the front end to return; nullopt unless its connection is broken.
  std::optional<Clock::time_point> resume_by_;

  std::optional<Why> ending_;  // first cause of the end; nullopt before the end begins
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
