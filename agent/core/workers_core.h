// Tracks a node's phase, and the node's ranks in the current attempt from their assignment to their
// end.
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

// Starts, watches and ends the ranks of this node. A component of AgentCore.
class WorkersCore {
 public:
  enum class Phase {
    // The node has no ranks: before the first assignment, between attempts, or as a spare.
    kIdle,
    kWorking,   // the attempt's ranks run, or have succeeded
    kDraining,  // the supervisor ends all ranks before the next attempt
    kStopping,  // the supervisor ends all ranks for good
    kTornDown,
  };

  WorkersCore(const NodeJob& job, AgentOutbox& out) : job_(job), out_(out) {}

  Phase phase() const { return phase_; }
  bool is_working() const { return phase_ == Phase::kWorking; }
  bool stopping() const { return phase_ >= Phase::kStopping; }
  // Returns the newest attempt in which this node had ranks or was a spare; 0 before the first
  // attempt.
  uint64_t attempt() const { return out_.attempt(); }
  const AttemptWorkers& ranks() const { return workers_; }
  // Returns the folder of the workers' cgroup; empty if the workers have no cgroup.
  const std::string& cgroup() const { return cgroup_; }
  // Returns whether ranks of this node run, or may still start.
  bool MayRanksRun() const;
  // Returns a text such as "rank 3 (node2, pid 123)" for messages.
  std::string Describe(const AttemptWorker& worker) const;

  // --- Messages of the rendezvous ---

  // Begins the attempt of an assignment. Returns false if this node cannot start ranks now or has
  // taken part in a later attempt.
  bool OnAssignment(const pb::RendezvousMessage& message);
  // Begins to drain after `attempt`. A spare drains too, so that the next attempt finds no
  // processes on any node. Returns false if this node's part of the job is ending, or if the node
  // has taken part in a later attempt.
  bool OnDrain(uint64_t attempt, const pb::Drain& drain);
  // Requests the stacks of those ranks in `inspect` that run on this node (InspectWorker).
  void OnInspect(const pb::Inspect& inspect, Clock::time_point now);
  // Sends the result of an InspectWorker action with a `look` to the rendezvous.
  void OnInspected(pb::Inspected inspected);
  // Handles the decision of the other ranks to continue without `rank`. Kills the rank if its loss
  // is tolerated.
  void OnEndRank(uint32_t rank);

  // --- Results of actions ---

  void OnPlanned(uint64_t attempt, Result<pb::SpawnWorkers> specs);
  // Handles the evidence about a worker that has ended. `round_trip_us` is the round trip of the
  // newest heartbeat to the rendezvous; 0 if no heartbeat was answered yet.
  void OnDescribed(const agent_action::DescribeWorker& asked, WorkerEnd end, uint64_t round_trip_us,
                   Clock::time_point now);
  // Handles a program of user `user` that listens at MASTER_PORT, where rank 0 of this node does
  // not listen yet.
  void OnMasterPortTaken(uint32_t user);

  // --- Events of the supervisor ---

  // Handles an event about a single worker or the workers' cgroup, except kExited.
  void OnSupervisorEvent(const pb::SupervisorEvent& event, Clock::time_point now);
  // Handles the end of a worker, after the MPI server has reported the worker's use of MPI.
  void OnEnded(const pb::WorkerExited& exited, Clock::time_point noticed);
  // Records that all processes of the ranks have ended. A draining node then requests the port of
  // its next attempt. If the rendezvous made the node drain and JobSpec.node_check is set, it also
  // requests that check.
  void OnReaped();
  // Ends the drain. Precondition: phase() is kDraining.
  void OnDrained() { phase_ = Phase::kIdle; }

  // Sends a signal that the front end requested to all ranks.
  void OnSignal(int signal_number) const;

  // --- Decisions of AgentCore ---

  // Enters the phase kDraining without a check of the node, because no rendezvous could use the
  // result of the check. Cancels a check that runs. Precondition: the node is not stopping.
  void BeginDrain();
  void BeginStop() { phase_ = Phase::kStopping; }
  // Ends all ranks by the graceful kill, or without a grace period if `kill_now`. `signal` is the
  // first signal to send; 0 for the signal that the job has chosen.
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
  std::string program_;  // name of the workers' program, for messages
  std::string cgroup_;
  enum class Check { kNo, kWanted, kRuns };
  Check check_ = Check::kNo;  // state of the node's check in kDraining
};

// Returns the request to send `signal` to one worker.
pb::SupervisorRequest SignalWorker(uint32_t local_rank, int signal);

}  // namespace dslaunch
