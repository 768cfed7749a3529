#include "agent/core/slot_ledger.h"

#include <algorithm>
#include <utility>

namespace dslaunch {
namespace {

using std::chrono::microseconds;
using enum GoodputBucket;

constexpr uint32_t kLooks = 6;       // minimum number of looks for a standstill
constexpr uint64_t kUsualSteps = 5;  // number of median steps without a step that count as a hang

// Moves up to `most` microseconds from one bucket to another. Returns the time that was moved.
uint64_t Move(GoodputTimes& times, GoodputBucket from, GoodputBucket to, uint64_t most) {
  const uint64_t moved = std::min(times[from], most);
  times[from] -= moved;
  times[to] += moved;
  return moved;
}

void MoveAll(GoodputTimes& times, GoodputBucket from, GoodputBucket to) {
  Move(times, from, to, times[from]);
}

}  // namespace

void SlotLedger::Close(Clock::time_point now) {
  // Only whole microseconds are counted, so the rest remains for the next call.
  const auto passed = std::chrono::duration_cast<microseconds>(now - since_);
  if (passed.count() <= 0) return;
  open_[bucket_] += static_cast<uint64_t>(passed.count());
  since_ += passed;
}

void SlotLedger::Enter(GoodputBucket bucket, Clock::time_point now) {
  Close(now);
  bucket_ = bucket;
}

void SlotLedger::Settle(const GoodputTimes& judged) {
  settled_ += judged;
  open_ = {};
  evaluated_ = false;
  still_us_ = 0;
}

void SlotLedger::BeginAttempt(uint64_t best_step, milliseconds hang, Clock::time_point now) {
  Enter(kStart, now);
  Settle(open_);
  before_ = kStart;
  best_step_ = std::max({best_step_, best_step, step_.value_or(0)});
  hang_ = hang;
  reports_ = false;
  step_.reset();
  step_us_ = {};
  compute_us_ = 0;
}

void SlotLedger::OnAllStarted(Clock::time_point now) {
  if (reports_ || bucket_ != kStart) return;
  Enter(kProductive, now);
  before_ = kProductive;
}

void SlotLedger::OnFirstReport() {
  if (std::exchange(reports_, true)) return;
  for (const GoodputBucket bucket : {kProductive, kWaiting, kHang}) MoveAll(open_, bucket, kStart);
  still_us_ = 0;
  before_ = kStart;
}

void SlotLedger::OnStatus(const StatusLine& line, Clock::time_point now) {
  using Event = StatusLine::Event;
  Close(now);
  OnFirstReport();
  switch (line.event) {
    case Event::kReady:
      if (!step_) bucket_ = before_ = kFirstStep;
      return;
    case Event::kStep:
      return OnStep(line);
    case Event::kWait:
      return OnWait(line);
    case Event::kSave:
      bucket_ = kSave;
      return;
    case Event::kSaved:
      bucket_ = before_;
      saved_ = {line.step, now};
      return;
    case Event::kEval:
      evaluated_ = true;
      bucket_ = before_;
      return;
    case Event::kCopied:
      bucket_ = before_;
      copied_ = {line.step, now};
      return;
    case Event::kLost:
    case Event::kRestored:
      bucket_ = before_;
      return;
  }
}

void SlotLedger::OnStep(const StatusLine& line) {
  const auto step = static_cast<uint64_t>(line.step);
  bucket_ = before_ = kProductive;
  if (copied_ && line.step < copied_->step) copied_.reset();
  if (step_ == step) return;
  if (line.compute_s) compute_us_ = ReportedTimeUs(*line.compute_s);
  if (!step_) {
    Settle(open_);
  } else {
    // A program may restart its count of steps. The number of repeated steps is then unknown, so
    // one step is counted.
    const uint64_t steps = step > *step_ ? step - *step_ : 1;
    const uint64_t time = open_[kProductive] + open_[kWaiting];
    Settle(Judge(open_, step, steps));
    step_us_.Add(time / steps);
  }
  step_ = step;
}

void SlotLedger::OnWait(const StatusLine& line) {
  if (line.exchange.empty()) {
    if (bucket_ == kWaiting) bucket_ = before_;
    return;
  }
  if (bucket_ != kWaiting) Move(open_, bucket_, kWaiting, ReportedTimeUs(line.waits_s));
  bucket_ = kWaiting;
}

void SlotLedger::OnStillness(const pb::Stillness& report, bool job_stands_still,
                             Clock::time_point now) {
  Close(now);
  if (reports_ || bucket_ != kProductive) return;
  const uint64_t still = report.looks() >= kLooks ? report.still_us() : 0;
  // A shorter time means that the rank showed life in between, so counting starts again; the time
  // that was already counted remains.
  if (still < still_us_) still_us_ = 0;
  const GoodputBucket as = job_stands_still ? kHang : kWaiting;
  if (as != still_as_) Move(open_, still_as_, as, still_us_);
  still_as_ = as;
  if (still > still_us_) still_us_ += Move(open_, kProductive, as, still - still_us_);
}

void SlotLedger::OnSucceeded(Clock::time_point now) {
  Enter(kWaiting, now);
  Settle(Judge(open_, step_.value_or(0), 0));
  // The other ranks may still need much time, which must not count as a hang of this rank, so the
  // rank has no step any more.
  best_step_ = std::max(best_step_, step_.value_or(0));
  step_.reset();
}

void SlotLedger::EndAttempt(bool hung, Clock::time_point now) {
  Enter(kTeardown, now);
  GoodputTimes judged = Judge(open_, step_.value_or(0), 0);
  if (hung) {
    if (!reports_) {
      Move(judged, kWaiting, kHang, still_us_);
    } else {
      for (const GoodputBucket bucket : {kProductive, kRecomputed, kWaiting, kFirstStep})
        MoveAll(judged, bucket, kHang);
    }
  }
  Settle(judged);
}

bool SlotLedger::IsHang(microseconds without_step) const {
  if (hang_.count() == 0 || evaluated_ || !step_) return false;
  return without_step >= hang_ &&
         static_cast<uint64_t>(without_step.count()) >= kUsualSteps * step_us_.Median();
}

GoodputTimes SlotLedger::Judge(GoodputTimes open, uint64_t step, uint64_t steps) const {
  if (!step_) return open;
  const uint64_t time = open[kProductive];
  if (IsHang(microseconds(time + open[kWaiting]))) {
    MoveAll(open, kProductive, kHang);
    MoveAll(open, kWaiting, kHang);
    return open;
  }
  if (steps == 0) {
    if (step < best_step_) MoveAll(open, kProductive, kRecomputed);
    return open;
  }
  if (compute_us_ > 0 && exchange_.count() > 0) {
    const uint64_t own_us = (compute_us_ + static_cast<uint64_t>(exchange_.count())) * steps;
    if (own_us < time) Move(open, kProductive, kWaiting, time - own_us);
  }
  // Last step before the newly completed steps.
  const uint64_t first = step - std::min(step, steps);
  if (first < best_step_) {
    const uint64_t repeated = std::min(step, best_step_) - first;
    const auto share = static_cast<double>(repeated) / static_cast<double>(steps);
    Move(open, kProductive, kRecomputed,
         static_cast<uint64_t>(share * static_cast<double>(open[kProductive])));
  }
  return open;
}

GoodputTimes SlotLedger::Times(Clock::time_point now) const {
  SlotLedger copy = *this;
  copy.Close(now);
  GoodputTimes times = copy.settled_;
  times += copy.Judge(copy.open_, step_.value_or(0), 0);
  return times;
}

}  // namespace dslaunch
