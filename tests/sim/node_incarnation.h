// One start of supervisor and agent on a node. The supervisor is the product's
// (tests/sim/supervisor.h); the agent is a model of agent/node/node_agent, which is bound to
// sockets and gRPC. What it decides is written here as it is there, under the same names where
// there are such; the disk, the log files and detached jobs are left out.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "proto/agent.pb.h"
#include "proto/wire/lease.h"
#include "rendezvous/coordinator.h"
#include "tests/sim/network.h"
#include "tests/sim/supervisor.h"
#include "tests/sim/virtual_time.h"
#include "tests/sim/world.h"

namespace dslaunch::sim {

class Rendezvous;

class NodeIncarnation {
 public:
  NodeIncarnation(World& world, size_t index, uint32_t node);
  NodeIncarnation(const NodeIncarnation&) = delete;

  uint32_t node() const { return node_; }
  size_t index() const { return index_; }
  // The agent's loop; its other threads (the heart, a rendezvous' server); the supervisor.
  Process& loop() { return loop_; }
  Process& threads() { return threads_; }
  Process& supervisor() { return supervisor_.process(); }
  Clock::time_point Now() const;
  Machine& machine() const;
  bool is_over() const { return supervisor_.gone() && loop_.gone; }
  Rendezvous* server() const { return server_; }

  // The front end's calls, on the loop.
  bool Prepare(const pb::PrepareRequest& request);  // false: the disk is full
  void Run(Rendezvous* rendezvous);
  void Stop(const pb::Cause& cause, bool kill_now);
  // False: it does not wait for another rendezvous. `rendezvous`: the one to go to; nullptr: this
  // node opens it.
  bool Failover(const pb::FailoverRequest& request, Rendezvous* rendezvous);
  // On its threads. `sent` is for the invariants: when the front end said it.
  uint64_t Renew(std::optional<uint64_t> last_seen_us, int64_t sent);
  // End of file on the supervisor's stdin: the front end's goodbye, its abort or its death.
  void OnFrontEndEof() { supervisor_.OnFrontEndEof(); }
  Wire& up() { return up_; }      // to the front end
  Wire& down() { return down_; }  // from it

  // What the supervisor says, the end of the connection that it carries (both on the loop), and its
  // own end.
  void OnSupervisorEvent(const pb::SupervisorEvent& event);
  void OnStreamOver();
  void OnSupervisorFinished();
  void OnSupervisorKilled();
  // By when a node that hears nothing of its front end has to end its ranks: from when the front
  // end said its last word here, or from when the machine or the agent went on.
  int64_t LeaseEndsBy() const;

  // What the rendezvous says.
  void OnRendezvousMessage(const Rendezvous& from, SessionId session,
                           const pb::RendezvousMessage& message);
  void OnRendezvousEnd(const Rendezvous& from, SessionId session);

  // Faults.
  void KillAgent();
  void KillSupervisor() { supervisor_.Kill(); }
  void KillBoth();
  void LosePower();
  void
  GetPowerBack();  // the machine: whoever still speaks to this incarnation hears that it is gone
  void ResetRendezvous();  // its connection
  void ResetLink();        // to the front end

 private:
  enum class Phase { kIdle, kWorking, kHalting, kStopping, kEmpty };

  // --- The agent ---
  void GoToRendezvous();
  void FindRendezvous(Clock::time_point deadline);
  void Join();
  void LoseRendezvous();  // as its end or its silence tells
  bool MayFailOver() const;
  void AwaitFailover(const pb::Cause& cause);
  void LeaveRendezvous();
  void OpenRendezvous(const pb::FailoverRequest& last, std::optional<uint32_t> lost_node);
  void OnAssignment(const pb::RendezvousMessage& message);
  void OnSpawned();
  void OnSpawnFailed();
  void OnWorkerExited(const pb::WorkerExited& exited);
  void StopWorkers(bool kill_now);
  void OnHalt(uint64_t attempt, const pb::Halt& halt);
  void OnAllReaped(bool left);
  void Halted();
  void TornDown();
  void BeginStop(const pb::Cause& cause, bool kill_now = false);
  void StopJob(const pb::Cause& cause, bool kill_now = false);
  void NotifyStop(const pb::Cause& cause);
  void OnClosed(const pb::Closed& word);
  void OnFrontEndGone();
  void OnSupervisorGone();
  void Beat();
  void Tick();
  void CheckSilence(bool tick_was_late);
  void CheckLease();
  void SetLease(milliseconds length);
  BootClock::time_point BootNow() const;
  void EndIfAllIsReported();
  void QuitIfIdle();
  void EndAgent(bool killed = false);
  void SendToRendezvous(pb::AgentMessage message);
  void Emit(pb::NodeEvent event);
  void EmitAlive();
  pb::AgentMessage MakeBeat() const;

  bool stopping() const { return phase_ >= Phase::kStopping; }
  std::string name() const;
  pb::Cause OwnCause(pb::Cause::Kind kind, ExitCode code, const std::string& what) const;
  template <class MakeText>
  void Log(MakeText make_text) const {
    if (!world_.trace.on()) return;
    world_.trace.Add(world_.timeline.now(),
                     name() + " (incarnation " + std::to_string(index_) + ")", make_text());
  }

  World& world_;
  const size_t index_;
  const uint32_t node_;
  Process loop_;
  Process threads_;
  Wire up_;    // to the front end
  Wire down_;  // from it

  Supervisor supervisor_;
  int64_t renewal_sent_ = 0;  // of the newest that came

  // The agent's.
  pb::PrepareRequest prepare_;
  bool prepared_ = false;
  Phase phase_ = Phase::kIdle;
  uint64_t attempt_ = 0;
  pb::Assignment assignment_;
  uint32_t spawned_ = 0;  // of this attempt's ranks here
  uint32_t ended_well_ = 0;
  Rendezvous* server_ = nullptr;
  Rendezvous* target_ = nullptr;    // where to go
  Rendezvous* attended_ = nullptr;  // the stream's other end
  SessionId session_ = 0;
  Clock::time_point last_seen_;
  std::optional<Clock::time_point> failover_by_;
  pb::Cause lost_by_;
  bool join_when_empty_ = false;
  bool closed_ = false;
  bool front_end_gone_ = false;
  bool supervisor_gone_ = false;
  bool detached_events_ = false;  // nothing is told to the front end any more
  bool ended_events_ = false;     // it was sent the last event
  pb::NodeDone done_;
  std::optional<Clock::time_point> quit_at_;
  std::optional<Clock::time_point> stream_over_at_;
  Lease lease_;
  Clock::time_point tick_expiry_;
  Clock::time_point turned_at_;
};

}  // namespace dslaunch::sim
