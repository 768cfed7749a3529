// Counts how the time of one slot of a node is used, from the start of the node's agent. The counts
// depend only on the attempt's events, the rank's status lines and its signs of life.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

#include "agent/core/rank_progress.h"
#include "base/deadline.h"
#include "proto/contract/goodput.h"
#include "proto/contract/status_line.h"
#include "proto/rendezvous.pb.h"

namespace dslaunch {

// Divides the time of one slot among buckets. Every moment is counted once, so the times always add
// up to the time since construction. Time since the last step is judged at the next step or at the
// end of the attempt. Only then it is known whether the step was new, waited for others, or hung.
// Times() applies the same rules to the time so far.
//
// A program that reports no status lines counts as productive while all ranks run. If it reports a
// status line later, the time before that line counts as its start.
class SlotLedger {
 public:
  explicit SlotLedger(Clock::time_point now) : since_(now) {}

  // Begins an attempt in which the slot has a rank. `best_step` is the highest step of earlier
  // attempts, or 0 if there is none. `hang` is the shortest time without a step that counts as a
  // hang, or 0 if no time does.
  void BeginAttempt(uint64_t best_step, milliseconds hang, Clock::time_point now);
  // Records that all ranks of the job have started.
  void OnAllStarted(Clock::time_point now);
  void OnStatus(const StatusLine& line, Clock::time_point now);
  // Records for how long the rank has shown no sign of life. The time counts after six looks, as
  // for a standstill (rendezvous/standstill.h). It counts as a hang if the whole job stands still,
  // otherwise as waiting for the active ranks. A rank that reports steps is judged by its steps
  // instead.
  void OnStillness(const pb::Stillness& report, bool job_stands_still, Clock::time_point now);
  // Records that the rank has exited with 0 while other ranks run.
  void OnSucceeded(Clock::time_point now);
  // Records that the rank has failed or is being stopped. `hung` is whether no rank made progress.
  void EndAttempt(bool hung, Clock::time_point now);
  // Records that all processes of the rank have ended and that another attempt may follow.
  void OnDrained(Clock::time_point now) { Enter(GoodputBucket::kRendezvous, now); }

  // Sets the part of each step that every rank spends on exchanges without waiting for a slower
  // rank; 0 if unknown.
  void SetExchangeTime(std::chrono::microseconds exchange) { exchange_ = exchange; }

  GoodputTimes Times(Clock::time_point now) const;
  GoodputBucket bucket() const { return bucket_; }
  // A checkpoint or a copy in memory that a rank has reported.
  struct Stored {
    int64_t step = 0;
    Clock::time_point at;
  };
  // Returns the newest checkpoint since the start of the agent; nullopt if none was reported.
  const std::optional<Stored>& saved() const { return saved_; }
  // Returns the newest copy in memory, which outlives the attempt; nullopt if none was reported, or
  // if the ranks have restarted from an earlier step.
  const std::optional<Stored>& copied() const { return copied_; }

 private:
  // Adds the time until `now` to the current bucket.
  void Close(Clock::time_point now);
  void Enter(GoodputBucket bucket, Clock::time_point now);
  // Counts the time until now as the program's start, because the program reports its state for the
  // first time.
  void OnFirstReport();
  void OnStep(const StatusLine& line);
  void OnWait(const StatusLine& line);
  // Adds the time since the last step to the settled times, and begins a new step.
  void Settle(const GoodputTimes& judged);
  // Returns how the times in `open` count if `steps` steps, the newest of which is `step`, were
  // completed in that time. With 0 steps, the next step is in progress.
  GoodputTimes Judge(GoodputTimes open, uint64_t step, uint64_t steps) const;
  bool IsHang(std::chrono::microseconds without_step) const;

  GoodputTimes settled_;
  GoodputTimes open_;  // times since the last step or since the attempt began
  GoodputBucket bucket_ = GoodputBucket::kRendezvous;
  GoodputBucket before_ = GoodputBucket::kStart;  // bucket that follows the current wait or save
  Clock::time_point since_;                       // time up to which all time is counted

  uint64_t best_step_ = 0;  // highest step of earlier attempts
  milliseconds hang_{0};
  std::chrono::microseconds exchange_{0};
  bool reports_ = false;          // whether the rank has sent a status line in this attempt
  std::optional<uint64_t> step_;  // newest step in this attempt
  RollingMedian step_us_;
  uint64_t compute_us_ = 0;  // rank's compute time in the newest step; 0 if unknown
  bool evaluated_ = false;   // whether an evaluation ran, which excuses a long step
  uint64_t still_us_ = 0;    // part of `open_` without a sign of life
  GoodputBucket still_as_ = GoodputBucket::kWaiting;
  std::optional<Stored> saved_;
  std::optional<Stored> copied_;
};

}  // namespace dslaunch
