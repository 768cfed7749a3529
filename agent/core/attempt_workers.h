// Keeps the state and progress of this node's workers in one attempt.
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
  pid_t pid = 0;                // 0 before the rank starts
  bool ended = false;           // true if the rank has ended, or is never started
  bool succeeded = false;       // true if the rank exited with 0
  bool loss_tolerated = false;  // true if the rank reported that its loss is tolerated (StatusLine)
  bool given_up = false;        // true if the other ranks gave this rank up; the agent kills it
  std::string folder;           // folder of the rank's log files and error.json
  RankProgressTracker progress;
};

// A rank of this node whose threads are to be read.
struct RankPlace {
  uint32_t rank = 0;
  uint32_t local_rank = 0;
  std::string exchange = {};  // exchange for which the rank waits; empty if it does not wait
  milliseconds waits{0};
  std::string folder = {};  // see AttemptWorker::folder
};

// Processes the supervisor's events and keeps the state that follows from them. Does no I/O.
class AttemptWorkers {
 public:
  AttemptWorkers() = default;  // has no ranks: before the first attempt, or for a spare
  AttemptWorkers(uint64_t attempt, pb::Assignment assignment, const pb::SpawnWorkers& specs);

  uint64_t attempt() const { return attempt_; }
  const pb::Assignment& assignment() const { return assignment_; }
  const std::vector<AttemptWorker>& all() const { return workers_; }

  // Return nullptr if this node has no such worker in this attempt.
  const AttemptWorker* Find(uint32_t local_rank) const;
  const AttemptWorker* FindRank(uint32_t rank) const;

  // Returns true once, when the last worker is started.
  bool OnSpawned(uint32_t local_rank, pid_t pid);
  // Records the end of a worker. `exit_code`: nullopt if a signal ended the worker or it did not
  // start. Returns true once: when the last worker has ended and all have succeeded, apart from
  // tolerated workers that a signal ended.
  bool OnEnded(uint32_t local_rank, std::optional<int> exit_code);
  // Returns whether every worker has ended, successfully or not. False if there are no workers.
  bool AllEnded() const;
  // Returns whether every worker whose loss is not tolerated has saved and stopped on request
  // (ExitCode::kPreempted). False if there are no workers.
  bool AllSaved() const { return !workers_.empty() && saved_ + tolerated_ == workers_.size(); }

  // Called when a worker has reported that `rank`, of any node, is lost. Returns true once for each
  // rank.
  bool OnReportedLost(uint32_t rank);
  // Called when the other ranks have given the worker up. Returns true once for each worker.
  bool OnGivenUp(uint32_t local_rank);
  // Called when a worker has reported from which step the attempt continues. Returns true only for
  // the first report of the attempt.
  bool OnRestored() { return !std::exchange(restored_, true); }

  void OnStatus(uint32_t local_rank, const StatusLine& line, Clock::time_point now);
  // Returns the progress of the workers that report steps, for a heartbeat.
  std::vector<pb::RankProgress> Progress(Clock::time_point now) const;

  // Returns the event for the front end once all workers are started.
  pb::Started Started() const;
  // Returns the running ranks in ascending order.
  std::vector<RankPlace> RunningRanks(Clock::time_point now) const;
  // Returns the pids of running workers; each leads a process group.
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
