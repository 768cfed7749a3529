// Simulates one start of a node's supervisor and the processes below it. The supervisor is the
// product's SupervisorCore. This class carries out its actions in virtual time: fork, waitpid and
// kill, and the ranks that start and end. The workers' cgroup and the watchdog are not simulated.
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

// The true state of the ranks that were started last, whether or not any process has noticed it
// yet.
struct Ranks {
  uint64_t attempt = 0;
  bool exist = false;     // whether some rank runs
  bool failed = false;    // whether a rank failed
  bool finished = false;  // whether all ranks succeeded
  bool stuck = false;     // whether the ranks make no steps
  int64_t began = 0;
  int64_t start_ms = 0;  // time until every rank has started its program
};

class Supervisor {
 public:
  Supervisor(World& world, NodeIncarnation& incarnation);
  Supervisor(const Supervisor&) = delete;

  Process& process() { return process_; }
  bool gone() const { return process_.gone; }
  const Ranks& ranks() const { return ranks_; }

  // Returns a request to start a node's ranks. Fills in only the fields that this simulation uses.
  static pb::SupervisorRequest StartRanks(uint64_t attempt, const pb::Assignment& assignment,
                                          uint32_t slots);

  // Handles a request of the agent, from any of its threads. The answers go to
  // NodeIncarnation::OnSupervisorEvent.
  void Request(pb::SupervisorRequest request);
  // Handles the agent's end; `killed` is whether SIGKILL ended it. Its descriptors are closed in
  // both cases.
  void OnAgentGone(bool killed);
  // Handles end of file on the supervisor's stdin. The agent's connection ends with it.
  void OnFrontEndEof();

  // The functions below inject faults, which end the supervisor and the processes that it has
  // started.
  void Kill();
  void LosePower();

 private:
  struct Child {
    pid_t pid = 0;
    std::optional<uint32_t> local_rank =
        {};               // nullopt for a process that a rank has started and does not wait for
    bool starts = false;  // whether the process has not yet started its program
    bool alive = true;
    bool apart = false;       // whether the process has its own session and serves the ranks
    bool deaf = false;        // whether the process ignores SIGTERM
    bool unkillable = false;  // whether not even SIGKILL ends the process
    bool killed = false;      // whether SIGKILL was sent
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
  // Returns whether ranks of `attempt` run and have neither failed nor finished nor been signalled.
  bool RanksRun(uint64_t attempt) const;
  void FailRank(uint64_t attempt);
  void FinishRanks(uint64_t attempt);
  void BeginSignals();
  void ExitAfter(int64_t delay, pid_t pid, const WorkerChange& change);
  void Exited(pid_t pid, const WorkerChange& change);
  void LoseRanks();
  // Returns whether a signal to `targets` includes `child`. Reports a violation if `child` serves
  // ranks that have not ended yet.
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
  bool signalled_ = false;  // whether the graceful kill has signalled the ranks
  std::vector<Child> children_;
  std::deque<Exit> exits_;  // ended children that are not reaped yet
  std::optional<AgentEnd> agent_exit_;
  pid_t last_pid_ = 0;
};

}  // namespace dslaunch::sim
