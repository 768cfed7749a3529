// Counts how the time of this node's ranks is used.
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

// Counts the time of each slot by use, reading the state of the workers after each event. A
// component of AgentCore.
class GoodputCore {
 public:
  GoodputCore(const NodeJob& job, const WorkersCore& workers) : job_(job), workers_(workers) {}

  // Records that all ranks of the attempt have started.
  void OnAllStarted(Clock::time_point now);
  // Records the cause that ends the attempt, or this node's part of it.
  void OnCause(const pb::Cause& cause) { hung_ = cause.kind() == pb::Cause::HANG; }
  void OnStatus(uint32_t local_rank, const StatusLine& line, Clock::time_point now);
  // Reads the rendezvous' report on all ranks from its heartbeat.
  void OnHeartbeat(const pb::Heartbeat& heartbeat);
  // Records for how long each rank of this node has shown no sign of life.
  void OnStillness(const std::vector<pb::Stillness>& ranks, Clock::time_point now);

  // Reads the workers' state again, because the last event may have changed it. The time of a slot
  // counts from the moment when the job was prepared.
  void Update(Clock::time_point now);
  pb::NodeGoodput Report(Clock::time_point now) const;
  // Returns the newest copy in memory that all ranks of this node have; nullopt if some rank has no
  // copy.
  std::optional<SlotLedger::Stored> NewestCopy() const;
  // Adds Report() to `action` if it emits Started, ends the events, or writes the result. Leaves
  // other actions unchanged.
  void AddTo(AgentAction& action, Clock::time_point now) const;
  // Returns whether a report to the front end is due; false before this node has ranks. If it is
  // due, the next report is due kReportEvery later.
  bool IsReportDue(Clock::time_point now);

 private:
  void UpdateSlot(size_t slot, Clock::time_point now);

  const NodeJob& job_;
  const WorkersCore& workers_;
  std::vector<SlotLedger> slots_;  // ledgers of the slots, indexed by local rank
  bool had_ranks_ = false;
  bool hung_ = false;
  bool job_stands_still_ = false;
  uint64_t attempt_ = 0;  // newest attempt in which this node has ranks
  WorkersCore::Phase phase_ = WorkersCore::Phase::kIdle;  // phase of the workers at the last update
  std::vector<bool> ended_;  // whether the end of each slot's rank was counted
  std::optional<Clock::time_point> reported_at_;
};

}  // namespace dslaunch
