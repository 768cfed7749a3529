// Counts the time of this node's ranks by its use.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <vector>

#include "agent/core/agent_action.h"
#include "agent/core/node_job.h"
#include "agent/core/slot_ledger.h"
#include "agent/core/workers_core.h"
#include "base/deadline.h"
#include "proto/agent.pb.h"
#include "proto/rendezvous.pb.h"

namespace dslaunch {

// Follows the state of the workers, which it reads after each event. See AgentCore for what all
// parts have in common.
class GoodputCore {
 public:
  GoodputCore(const NodeJob& job, const WorkersCore& workers) : job_(job), workers_(workers) {}

  // Called when all ranks of the attempt have been started.
  void OnAllStarted(Clock::time_point now);
  // Called with the reason why the attempt, or this node's part of it, ends.
  void OnCause(const pb::Cause& cause) { hung_ = cause.kind() == pb::Cause::HANG; }
  void OnStatus(uint32_t local_rank, const StatusLine& line, Clock::time_point now);
  // Reads the rendezvous' report on all ranks.
  void OnHeartbeat(const pb::Heartbeat& heartbeat);
  // Called with the times for which the ranks here have shown no sign of life.
  void OnStillness(const std::vector<pb::Stillness>& ranks, Clock::time_point now);

  // Reads the workers' state again, because the last event may have changed it. The times of the
  // slots are counted from the moment at which the job is prepared.
  void Update(Clock::time_point now);
  pb::NodeGoodput Report(Clock::time_point now) const;
  // Returns the newest copy in memory that each rank of this node has; nullopt if one has none.
  std::optional<SlotLedger::Stored> NewestCopy() const;
  // Adds the report to an action that begins an attempt or ends this node's part of the job.
  void AddTo(AgentAction& action, Clock::time_point now) const;
  // Returns whether a report to the front end is due. After that, none is due for some seconds.
  bool IsReportDue(Clock::time_point now);

 private:
  void UpdateSlot(size_t slot, Clock::time_point now);

  const NodeJob& job_;
  const WorkersCore& workers_;
  std::vector<SlotLedger> slots_;  // indexed by local rank
  bool had_ranks_ = false;
  bool hung_ = false;
  bool job_stands_still_ = false;
  uint64_t attempt_ = 0;                                  // newest attempt with ranks here
  WorkersCore::Phase phase_ = WorkersCore::Phase::kIdle;  // at the last update
  std::vector<bool> ended_;  // whether the end of the slot's rank was counted
  std::optional<Clock::time_point> reported_at_;
};

}  // namespace dslaunch
