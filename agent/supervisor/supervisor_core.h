// The supervisor's state machine: its response to each request of its agent, end of a child, signal
// and timeout. Its part SupervisorWorkersCore decides about the workers. Pure: no clock, threads or
// I/O; agent/supervisor/supervisor.cc, tests and the simulator carry out its actions.
//
//   serving -> ending: graceful kill -> agent's end -> its last bytes -> finished
//
// While it serves, the graceful kill also runs for StopWorkers and when the front end's lease
// expires. Every end of the supervisor goes through BeginEnding; Advance takes each further step
// as soon as its condition holds.
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
    bool plant_early_reaped = false;  // test only; see SupervisorWorkersCore
  };

  // Time for the agent to exit by itself, and again for it to die from SIGKILL.
  static constexpr milliseconds kAgentEndLimit{2'000};
  // Time for the front end to return after its connection broke, unless the agent learns earlier
  // that it will not. A login takes a fraction of a second; ranks should not run longer without a
  // front end.
  static constexpr milliseconds kResumeLimit{4'000};
  // Time for the agent's last bytes if the front end reads slowly.
  static constexpr milliseconds kDrainLimit{2'000};

  explicit SupervisorCore(const Options& options)
      : options_(options), workers_(options.plant_early_reaped) {}

  // The part that handles starts and changes of workers. The caller passes these events to it and
  // carries out the actions that it returns.
  SupervisorWorkersCore& workers() { return workers_; }

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
  // Called for a reaped child: the first if it was the agent (SupervisorWorkersCore::OnChange if it
  // was a worker), and then OnReaped(), even if it was neither.
  SupervisorActions OnAgentEnd(AgentEnd end);
  SupervisorActions OnReaped(Clock::time_point now);
  // Called at wake() or later; nullopt: never.
  SupervisorActions OnTime(Clock::time_point now);
  std::optional<Clock::time_point> wake() const;

  // Called with the answers to CountLeft and ListLeft.
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

  void OnAlive(const pb::AgentAlive& alive, Clock::time_point now);
  void Configure(const pb::Configure& configure, Clock::time_point now);

  // Watch the agent and the front end's lease. When the lease expires, the agent acts; the
  // supervisor acts if the agent is stopped.
  void WatchAgent();
  void OnWatch(Clock::time_point now);

  void BeginEnding(Why why, const char* reason, Clock::time_point now);
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
  void Append(SupervisorActions actions);
  SupervisorActions TakeActions();

  Options options_;
  SupervisorWorkersCore workers_;
  bool count_wanted_ = false;  // number of processes left
  bool count_asked_ = false;   // CountLeft was sent and not yet answered

  milliseconds agent_dead_{0};
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
