// The supervisor's state machine: what it does about each request of its agent, each end of a
// child, each signal and each moment. Pure: no clock, no threads, no I/O;
// agent/supervisor/supervisor.cc, tests and the simulator carry its actions out.
//
//   serving -> ending: graceful kill -> agent's end -> its last bytes -> finished
//
// While it serves, the graceful kill also runs for StopWorkers and once the front end's lease is
// over. Nothing is started while it runs. Whatever ends the supervisor goes through BeginEnding;
// each further step is taken in Advance, as soon as what it waits for is there.
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

// What the supervisor has to do. Actions are carried out in order; one that has an answer is
// answered before the next one is carried out, and what the answer calls for is done first (but for
// StartWorker).
namespace supervisor_action {

struct SendToAgent {
  pb::SupervisorEvent event;
};
// Answer: OnCgroup.
struct MakeCgroup {
  std::string job_id;
};
struct StartWatchdog {
  std::string job_id;
  GracefulKillOptions graceful_kill;
};
// In a process group of its own. Answer: OnStarted or OnStartFailed, as soon as it is known: many
// start side by side, however long each takes.
struct StartWorker {
  pb::WorkerSpec spec;
  std::shared_ptr<const pb::SpawnWorkers> shared;  // what all of them have in common
};
// To each worker that runs, or to one of them; not to what it started.
struct SignalWorkers {
  int signal = 0;
  std::optional<uint32_t> local_rank = {};  // nullopt: all
};
// Reap what has ended, then count what is left of what descends from the supervisor or is in the
// workers' cgroup, but for agent and watchdog. Answer: OnLeft.
struct CountLeft {};
// `signal`, then SIGCONT, to those of the counted processes that are `targets`.
struct SignalLeft {
  int signal = 0;
  KillTargets targets = KillTargets::kAll;
};
// SIGKILL to those.
struct KillLeft {
  KillTargets targets = KillTargets::kAll;
};
// Describe what CountLeft counts. Answer: OnLeftListed.
struct ListLeft {};
// Nothing of the workers is left: remove their cgroup and forget their group numbers, which may be
// used again.
struct ForgetWorkers {};
// The agent sees end of file from the front end.
struct CloseInbound {};
// A front end that comes back is turned away from now on.
struct RefuseFrontEnd {};
struct KillAgent {};  // by SIGKILL
struct Print {        // on stderr
  std::string line;
};
// The last action: end with this exit code, and with this line on stderr unless it is empty.
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
  const char* reason = "";  // static
};
using SupervisorActions = std::vector<SupervisorAction>;

// What became of a worker.
struct WorkerChange {
  WorkerEvent event = WorkerEvent::kExited;  // kExited, kKilled, kStopped or kContinued
  int exit_code = 0;                         // when it ended by itself
  int signal = 0;                            // that ended or stopped it
  bool core_dumped = false;
  bool out_of_memory = false;  // the cgroup counted a kill for memory, of it or of what it started
};

// How the agent ended.
struct AgentEnd {
  int code = 0;  // exit code or signal
  bool by_signal = false;
};

class SupervisorCore {
 public:
  struct Options {
    pid_t agent_pid = 0;  // for the sentence about its end
    // In a step of Slurm's, a signal that ends processes is the wish that the job ends: the agent
    // stops it in order, and supervisor and agent outlive the signal until the front end, its lease
    // or SIGKILL ends them.
    bool in_step = false;
    // Test only: a planted bug that the simulator must find. Once a signal is sent, everything
    // counts as ended.
    bool plant_early_reaped = false;
  };

  // For the agent to end by itself, and then to die of SIGKILL.
  static constexpr milliseconds kAgentEndLimit{2'000};
  // For the front end to come back after its connection broke, unless the agent learns sooner that
  // it will not. A login takes a fraction of a second; ranks without a front end should not live on
  // for longer.
  static constexpr milliseconds kResumeLimit{4'000};
  // For the agent's last bytes, when the front end reads slowly.
  static constexpr milliseconds kDrainLimit{2'000};

  explicit SupervisorCore(const Options& options) : options_(options) {}

  // Each returns what to do. `now` never goes back.

  // The agent's requests, and the end of the socket on which they come: closed, or nonsense on it.
  SupervisorActions OnRequest(pb::SupervisorRequest request, Clock::time_point now);
  SupervisorActions OnControlLost(Clock::time_point now);
  // End of file from the front end, or it cannot be written to.
  SupervisorActions OnFrontEndGone(Clock::time_point now);
  // The connection to a front end that can resume its stream broke, and was made again.
  SupervisorActions OnConnectionBroken(Clock::time_point now);
  SupervisorActions OnConnectionResumed();
  // The front end has all that the agent sent, and nothing follows.
  SupervisorActions OnOutboundEnded(Clock::time_point now);
  // To the supervisor.
  SupervisorActions OnSignal(int signal, Clock::time_point now);
  // What was reaped, one by one, and then OnReaped, also when it was neither agent nor worker.
  SupervisorActions OnWorkerChange(uint32_t local_rank, const WorkerChange& change);
  SupervisorActions OnAgentEnd(AgentEnd end);
  SupervisorActions OnReaped(Clock::time_point now);
  // It is time: to be called at wake(), or later. nullopt: never.
  SupervisorActions OnTime(Clock::time_point now);
  std::optional<Clock::time_point> wake() const;

  // Answers to actions.
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
  void ReportFailure(uint32_t local_rank, const SpawnFailure& failure, const char* reason);

  // Watches the agent and the front end's lease. The agent acts when the lease is over; the
  // supervisor does where the agent is stopped.
  void WatchAgent();
  void OnWatch(Clock::time_point now);
  void OnLeaseOver(Clock::time_point now);

  void BeginEnding(Why why, const char* reason, Clock::time_point now);
  void StartGracefulKill(bool kill_now, int first_signal = 0);  // 0: stop_signal_
  bool RanksEnded() const;
  void EndGracefulKill(const LeftProcesses& left);
  // Takes every step that is possible now. Called after whatever may have changed something.
  void Advance(Clock::time_point now);
  void KillAgent(const char* reason, Clock::time_point now);
  void Finish();
  std::string AgentFailure() const;  // empty: it succeeded

  template <class What>
  void Act(What what, const char* reason) {
    out_.push_back({std::move(what), reason});
  }
  void SendFrontEndGone(const char* reason);
  void SendConnection(bool is_broken, const char* reason);
  void GiveUpFrontEnd(const char* reason, Clock::time_point now);
  SupervisorActions TakeActions();

  Options options_;
  std::string job_id_;
  GracefulKillOptions graceful_kill_options_;
  int stop_signal_ = SIGTERM;
  milliseconds agent_dead_{0};
  std::map<uint32_t, WorkerState> workers_;  // by local_rank
  bool has_cgroup_ = false;
  bool watchdog_started_ = false;

  std::optional<GracefulKillState> graceful_kill_;
  std::optional<Clock::time_point> graceful_kill_wake_;
  bool count_wanted_ = false;  // what is left
  bool count_asked_ = false;   // and not answered yet
  bool stop_requested_ = false;
  bool gave_up_ = false;  // something is left that could not be ended

  Clock::time_point last_seen_;
  std::optional<Clock::time_point> watch_at_;
  std::optional<Clock::time_point> lease_end_;  // as the agent reported; none: no lease
  bool lease_is_over_ = false;
  bool detached_ = false;
  std::optional<Clock::time_point> resume_by_;  // the connection to the front end is broken

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
