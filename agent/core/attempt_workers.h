// Stores the state and progress of this node's workers in one attempt.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "agent/core/rank_progress.h"
#include "base/deadline.h"
#include "proto/agent.pb.h"
#include "proto/contract/status_line.h"
#include "proto/rendezvous.pb.h"
#include "proto/supervisor.pb.h"

namespace dslaunch {

struct AttemptWorker {
  uint32_t rank = 0;
  uint32_t local_rank = 0;
  pid_t pid = 0;           // process ID; 0 before the rank starts
  bool ended = false;      // whether the rank has ended, or will never start
  bool succeeded = false;  // whether the rank exited with 0
  // Whether the rank reported that its loss is tolerated (StatusLine).
  bool loss_tolerated = false;
  // Whether the other ranks declared this rank lost, so that the agent kills it.
  bool given_up = false;
  std::string folder;  // folder of the rank's log files and error.json
  RankProgressTracker progress;
};

// A rank of this node whose threads are to be inspected.
struct RankPlace {
  uint32_t rank = 0;
  uint32_t local_rank = 0;
  std::string exchange = {};  // exchange for which the rank waits; empty if the rank does not wait
  milliseconds waits{0};
  std::string folder = {};  // folder of the rank's log files and error.json
};

// Updates the state of the workers for each event of the supervisor. Performs no I/O.
class AttemptWorkers {
 public:
  // Creates an object without ranks, for the time before the first attempt and for a spare.
  AttemptWorkers() = default;
  AttemptWorkers(uint64_t attempt, pb::Assignment assignment, const pb::SpawnWorkers& specs);

  uint64_t attempt() const { return attempt_; }
  const pb::Assignment& assignment() const { return assignment_; }
  const std::vector<AttemptWorker>& all() const { return workers_; }

  // Returns the worker with this local rank; nullptr if this attempt has no such worker.
  const AttemptWorker* Find(uint32_t local_rank) const;
  // Returns the worker of `rank`; nullptr if `rank` is not on this node in this attempt.
  const AttemptWorker* FindRank(uint32_t rank) const;

  // Records the start of a worker. Returns true once, when the last worker has started.
  bool OnSpawned(uint32_t local_rank, pid_t pid);
  // Records the end of a worker. `exit_code` is nullopt if a signal ended the worker or it did not
  // start. Returns true once: when the last worker has ended and each has succeeded. A worker
  // without an exit code counts as succeeded if its loss is tolerated.
  bool OnEnded(uint32_t local_rank, std::optional<int> exit_code);
  // Returns whether every worker has ended, successfully or not; false if there are no workers.
  bool AllEnded() const;
  // Returns whether every worker whose loss is not tolerated has saved its state and exited on
  // request (ExitCode::kPreempted); false if there are no workers.
  bool AllSaved() const { return !workers_.empty() && saved_ + tolerated_ == workers_.size(); }

  // Records that a worker reported `rank`, of any node, as lost. Returns true once for each rank.
  bool OnReportedLost(uint32_t rank);
  // Records that the other ranks declared the worker lost. Returns true once for each worker.
  bool OnGivenUp(uint32_t local_rank);
  // Records that a worker reported from which step the attempt continues. Returns true only for the
  // first report of the attempt.
  bool OnRestored() { return !std::exchange(restored_, true); }

  void OnStatus(uint32_t local_rank, const StatusLine& line, Clock::time_point now);
  // Returns the progress of the workers that report steps, for use in a heartbeat.
  std::vector<pb::RankProgress> Progress(Clock::time_point now) const;

  // Returns the event for the front end. Precondition: all workers have started.
  pb::Started Started() const;
  // Returns the running ranks in ascending order, with their waits as of `now`.
  std::vector<RankPlace> RunningRanks(Clock::time_point now) const;
  // Returns the process IDs of running workers, each of which leads a process group.
  std::vector<pid_t> RunningPids() const;

 private:
  uint64_t attempt_ = 0;
  pb::Assignment assignment_;
  bool share_cores_ = false;
  std::vector<AttemptWorker> workers_;
  std::set<uint32_t> reported_lost_;
  bool restored_ = false;
  size_t spawned_ = 0;
  size_t ended_well_ = 0;
  size_t saved_ = 0;
  size_t tolerated_ = 0;
};

}  // namespace dslaunch
