// One start of a node's supervisor and the processes below it. The supervisor is the product's
// SupervisorCore; here is what carries its actions out in virtual time: fork, waitpid and kill, and
// the ranks that they start and end. The workers' cgroup and the watchdog are left out.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "agent/supervisor/supervisor_core.h"
#include "proto/rendezvous.pb.h"
#include "proto/supervisor.pb.h"
#include "tests/sim/virtual_time.h"
#include "tests/sim/world.h"

namespace dslaunch::sim {

class NodeIncarnation;

// The ranks that were started last, as they really are, whoever knows it.
struct Ranks {
  uint64_t attempt = 0;
  bool exist = false;     // some run
  bool failed = false;    // one did
  bool finished = false;  // all succeeded
  bool stuck = false;     // they make no steps
  int64_t began = 0;
  int64_t start_ms = 0;  // each is its program by then
};

class Supervisor {
 public:
  Supervisor(World& world, NodeIncarnation& incarnation);
  Supervisor(const Supervisor&) = delete;

  Process& process() { return process_; }
  bool gone() const { return process_.gone; }
  const Ranks& ranks() const { return ranks_; }

  // The start of a node's ranks, with what this simulation needs to know of them.
  static pb::SupervisorRequest StartRanks(uint64_t attempt, const pb::Assignment& assignment,
                                          uint32_t slots);

  // The agent's words, from whichever of its threads. The answers go to
  // NodeIncarnation::OnSupervisorEvent.
  void Request(pb::SupervisorRequest request);
  // The agent has ended, by itself or killed: its descriptors are closed.
  void OnAgentGone(bool killed);
  // End of file on the supervisor's stdin. The agent's connection ends with it.
  void OnFrontEndEof();

  // Faults. Both end it, and what it has started.
  void Kill();
  void LosePower();

 private:
  struct Child {
    pid_t pid = 0;
    std::optional<uint32_t> local_rank =
        {};               // none: a rank has started it, and does not wait for it
    bool starts = false;  // it is not its program yet
    bool alive = true;
    bool apart = false;       // it has a session of its own, and serves the ranks
    bool deaf = false;        // to SIGTERM
    bool unkillable = false;  // not even SIGKILL ends it
    bool killed = false;      // SIGKILL was sent
  };
  struct Exit {
    pid_t pid = 0;
    std::optional<uint32_t> local_rank;
    WorkerChange change;
  };

  void CarryOut(const SupervisorActions& actions);
  void ArmTimer();
  void Reap();
  void Do(const supervisor_action::SendToAgent& send);
  void Do(const supervisor_action::MakeCgroup& make);
  void Do(const supervisor_action::StartWatchdog&) {}
  void Do(const supervisor_action::StartWorker& start);
  void Do(const supervisor_action::SignalWorkers&) {}
  void Do(const supervisor_action::CountLeft&);
  void Do(const supervisor_action::SignalLeft&);
  void Do(const supervisor_action::KillLeft&);
  void Do(const supervisor_action::ListLeft&);
  void Do(const supervisor_action::ForgetWorkers&) {}
  void Do(const supervisor_action::CloseInbound&);
  void Do(const supervisor_action::RefuseFrontEnd&) {}
  void Do(const supervisor_action::KillAgent&);
  void Do(const supervisor_action::Print&) {}
  void Do(const supervisor_action::Finish&);

  void OnStarted(pid_t pid);
  void BeginRanks(uint64_t attempt);
  // Returns whether ranks of that attempt run, and nothing has begun to end them.
  bool RanksRun(uint64_t attempt) const;
  void FailRank(uint64_t attempt);
  void FinishRanks(uint64_t attempt);
  void BeginSignals();
  void ExitAfter(int64_t delay, pid_t pid, const WorkerChange& change);
  void Exited(pid_t pid, const WorkerChange& change);
  void LoseRanks();
  // Returns whether a signal to `targets` is for this one; the ranks must be gone before a process
  // apart gets one.
  bool IsMeant(const Child& child, KillTargets targets) const;
  size_t CountAlive() const;
  LeftCount CountLeft() const;
  size_t CountKillable() const;

  World& world_;
  NodeIncarnation& incarnation_;
  Process process_;
  SupervisorCore core_;
  std::optional<Clock::time_point> armed_for_;
  uint64_t timer_number_ = 0;

  Ranks ranks_;
  bool signalled_ = false;  // the ranks, by the graceful kill
  std::vector<Child> children_;
  std::deque<Exit> exits_;  // not reaped yet
  std::optional<AgentEnd> agent_exit_;
  pid_t last_pid_ = 0;
};

}  // namespace dslaunch::sim
