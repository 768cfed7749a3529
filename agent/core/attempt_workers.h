// This node's workers in one attempt, and their progress.
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
  pid_t pid = 0;                // pid of the rank; 0 before its start
  bool ended = false;           // the rank has ended, or is never started
  bool succeeded = false;       // the rank exited with 0
  bool loss_tolerated = false;  // the rank has reported that its loss is tolerated (StatusLine)
  bool given_up = false;        // the other ranks gave this rank up, so the agent kills it
  std::string folder;           // folder of the rank's log files and error.json
  RankProgressTracker progress;
};

// A rank of this node whose threads are to be read, and the exchange for which it has reported to
// wait.
struct RankPlace {
  uint32_t rank = 0;
  uint32_t local_rank = 0;
  std::string exchange = {};  // empty: none
  milliseconds waits{0};
  std::string folder = {};  // AttemptWorker::folder
};

// Processes the supervisor's events and keeps the state that follows from them. Pure.
class AttemptWorkers {
 public:
  AttemptWorkers() = default;  // no ranks: before the first attempt, or a spare
  AttemptWorkers(uint64_t attempt, pb::Assignment assignment, const pb::SpawnWorkers& specs);

  uint64_t attempt() const { return attempt_; }
  const pb::Assignment& assignment() const { return assignment_; }
  const std::vector<AttemptWorker>& all() const { return workers_; }  // indexed by local_rank

  // Return nullptr if this attempt has no such worker here.
  const AttemptWorker* Find(uint32_t local_rank) const;
  const AttemptWorker* FindRank(uint32_t rank) const;

  // Returns true once, when the last worker is started.
  bool OnSpawned(uint32_t local_rank, pid_t pid);
  // `exit_code`: nullopt for a signal, and for a worker that did not start. Returns true once: when
  // the last worker has ended and all have succeeded, apart from tolerated workers that a signal
  // ended.
  bool OnEnded(uint32_t local_rank, std::optional<int> exit_code);
  // Whether every worker has ended, successfully or not. False if there are no workers.
  bool AllEnded() const;
  // Whether every worker whose loss is not tolerated has saved and stopped on request
  // (ExitCode::kPreempted).
  bool AllSaved() const { return !workers_.empty() && saved_ + tolerated_ == workers_.size(); }

  // Called when a worker has reported that `rank`, of any node, is lost. Returns true once for each
  // rank.
  bool OnReportedLost(uint32_t rank);
  // Called when the other ranks have given the worker up. Returns true once for each worker.
  bool OnGivenUp(uint32_t local_rank);
  // Called when a worker has reported from which step the attempt continues. Returns true once.
  bool OnRestored() { return !std::exchange(restored_, true); }

  void OnStatus(uint32_t local_rank, const StatusLine& line, Clock::time_point now);
  // Returns the progress of the workers that report steps, for a heartbeat.
  std::vector<pb::RankProgress> Progress(Clock::time_point now) const;

  // Returns the event for the front end once all workers are started.
  pb::Started Started() const;
  // Returns the running ranks, ascending.
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
