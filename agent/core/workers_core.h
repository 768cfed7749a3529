// Tracks a node's phase, and its ranks in the current attempt from their assignment to their end.
#pragma once

#include <cstdint>
#include <string>

#include "agent/core/agent_outbox.h"
#include "agent/core/attempt_workers.h"
#include "agent/core/node_job.h"
#include "agent/core/worker_failure.h"
#include "base/deadline.h"
#include "base/error.h"
#include "proto/rendezvous.pb.h"
#include "proto/supervisor.pb.h"

namespace dslaunch {

// Starts, watches and ends the ranks of this node. See AgentCore for the rules of all parts.
class WorkersCore {
 public:
  enum class Phase {
    kIdle,      // no ranks: before the first assignment, between attempts, or a spare
    kWorking,   // an attempt's ranks run, or have succeeded
    kDraining,  // the supervisor ends all ranks before the next attempt
    kStopping,  // the supervisor tears the node down
    kTornDown,
  };

  WorkersCore(const NodeJob& job, AgentOutbox& out) : job_(job), out_(out) {}

  Phase phase() const { return phase_; }
  bool is_working() const { return phase_ == Phase::kWorking; }
  bool stopping() const { return phase_ >= Phase::kStopping; }
  // Returns the newest attempt in which this node had ranks or was a spare; 0 before the first.
  uint64_t attempt() const { return out_.attempt(); }
  const AttemptWorkers& ranks() const { return workers_; }
  // Returns the folder of the workers' cgroup; empty if they have none.
  const std::string& cgroup() const { return cgroup_; }
  // Returns whether ranks of this node run, or may still be started.
  bool MayRanksRun() const;
  // Returns "rank 3 (node2, pid 123)", for messages.
  std::string Describe(const AttemptWorker& worker) const;

  // --- The rendezvous ---

  // Begins the attempt of an assignment. Returns false if this node cannot start ranks now or has
  // been in a later attempt.
  bool OnAssignment(const pb::RendezvousMessage& message);
  // Begins to drain after `attempt`. A spare drains too, so that the next attempt finds every node
  // empty. Returns false if this node's part is ending, or if this node has been in a later
  // attempt.
  bool OnDrain(uint64_t attempt, const pb::Drain& drain);
  void OnInspect(const pb::Inspect& inspect, Clock::time_point now);
  // Handles the answer to InspectWorker with a `look`, for the rendezvous.
  void OnInspected(pb::Inspected inspected);
  // Called when the other ranks continue without `rank`. Kills the rank if its loss is tolerated.
  void OnEndRank(uint32_t rank);

  // --- NodeAgent ---

  void OnPlanned(uint64_t attempt, Result<pb::SpawnWorkers> specs);
  // Called with the evidence about a worker that has ended. `round_trip_us`: round trip of the
  // newest heartbeat to the rendezvous; 0 if none was answered yet.
  void OnDescribed(const agent_action::DescribeWorker& asked, WorkerEnd end, uint64_t round_trip_us,
                   Clock::time_point now);
  // Called when a program of user `user` listens at MASTER_PORT, where rank 0 of this node does not
  // listen yet.
  void OnMasterPortTaken(uint32_t user);

  // --- The supervisor ---

  // Handles the events of single workers and of their cgroup, except kExited.
  void OnSupervisorEvent(const pb::SupervisorEvent& event, Clock::time_point now);
  // Called when a worker has ended and the MPI server has nothing to add.
  void OnEnded(const pb::WorkerExited& exited, Clock::time_point noticed);
  // Called when no process of the ranks is left. A draining node checks itself if its rendezvous
  // made it drain and the job requests the check, and requests the port of its next attempt.
  void OnReaped();
  // Ends the drain. Precondition: phase() is kDraining.
  void OnDrained() { phase_ = Phase::kIdle; }

  // Sends a signal of the front end to all ranks.
  void OnSignal(int signal_number) const;

  // --- AgentCore ---

  // Drains without a check of the node, because no rendezvous could use its result. Precondition:
  // not stopping.
  void BeginDrain();
  void BeginStop() { phase_ = Phase::kStopping; }
  // Ends all ranks. `signal`: the first signal to send; 0 for the signal that the job has chosen.
  void Stop(bool kill_now = false, int signal = 0) const;

 private:
  void OnSpawned(const pb::WorkerSpawned& spawned);
  void OnSpawnFailed(const pb::SpawnFailed& failed);
  void OnStopped(const pb::WorkerStopped& stopped);
  void OnStatus(const pb::StatusBytes& status, Clock::time_point now);
  void OnReportedLost(uint32_t rank);

  const NodeJob& job_;
  AgentOutbox& out_;
  Phase phase_ = Phase::kIdle;
  AttemptWorkers workers_;
  std::string program_;  // program of the workers, for messages
  std::string cgroup_;
  enum class Check { kNo, kWanted, kRuns };
  Check check_ = Check::kNo;  // state of the node's check in kDraining
};

// Returns the request to send `signal` to one worker.
pb::SupervisorRequest SignalWorker(uint32_t local_rank, int signal);

}  // namespace dslaunch
