#include "agent/core/goodput_core.h"

#include <algorithm>
#include <chrono>

namespace dslaunch {
namespace {

// Interval of reports to the front end. A front end that loses a node has times of the node that
// are at most this old.
constexpr milliseconds kReportEvery(5'000);

uint64_t MicrosecondsSince(Clock::time_point then, Clock::time_point now) {
  return static_cast<uint64_t>(
      std::chrono::duration_cast<std::chrono::microseconds>(now - then).count());
}

}  // namespace

void GoodputCore::OnAllStarted(Clock::time_point now) {
  if (!workers_.is_working()) return;
  for (SlotLedger& slot : slots_) slot.OnAllStarted(now);
}

void GoodputCore::OnStatus(uint32_t local_rank, const StatusLine& line, Clock::time_point now) {
  if (local_rank >= slots_.size() || !workers_.is_working() || ended_[local_rank]) return;
  slots_[local_rank].OnStatus(line, now);
}

void GoodputCore::OnHeartbeat(const pb::Heartbeat& heartbeat) {
  job_stands_still_ = heartbeat.stands_still();
  for (SlotLedger& slot : slots_)
    slot.SetExchangeTime(ReportedMicroseconds(heartbeat.exchange_us()));
}

void GoodputCore::OnStillness(const std::vector<pb::Stillness>& ranks, Clock::time_point now) {
  const uint32_t first_rank = workers_.ranks().assignment().first_rank();
  for (const pb::Stillness& rank : ranks) {
    const uint32_t slot = rank.rank() - first_rank;
    if (slot < slots_.size()) slots_[slot].OnStillness(rank, job_stands_still_, now);
  }
}

void GoodputCore::Update(Clock::time_point now) {
  using Phase = WorkersCore::Phase;
  if (slots_.empty() && job_.prepared()) {
    slots_.assign(job_.node().slots(), SlotLedger(now));
    ended_.assign(slots_.size(), false);
  }
  const Phase phase = workers_.phase();
  const bool has_ranks = workers_.ranks().attempt() > attempt_;
  if (phase == Phase::kWorking && has_ranks) {
    attempt_ = workers_.ranks().attempt();
    had_ranks_ = true;
    hung_ = false;
    std::fill(ended_.begin(), ended_.end(), false);
    const milliseconds hang(job_.spec().policy().hang_ms());
    for (SlotLedger& slot : slots_)
      slot.BeginAttempt(workers_.ranks().assignment().best_step(), hang, now);
  }
  if (phase == Phase::kWorking) {
    for (size_t slot = 0; slot < slots_.size(); ++slot) UpdateSlot(slot, now);
  } else if (phase != phase_) {
    for (SlotLedger& slot : slots_) {
      if (phase == Phase::kIdle)
        slot.OnDrained(now);
      else if (phase_ <= Phase::kWorking)
        slot.EndAttempt(hung_, now);
    }
  }
  phase_ = phase;
}

void GoodputCore::UpdateSlot(size_t slot, Clock::time_point now) {
  const AttemptWorker* const worker = workers_.ranks().Find(static_cast<uint32_t>(slot));
  if (worker == nullptr || !worker->ended || ended_[slot]) return;
  ended_[slot] = true;
  if (worker->succeeded)
    slots_[slot].OnSucceeded(now);
  else
    slots_[slot].EndAttempt(/*hung=*/false, now);
}

pb::NodeGoodput GoodputCore::Report(Clock::time_point now) const {
  pb::NodeGoodput report;
  if (!had_ranks_) return report;
  for (const SlotLedger& slot : slots_) {
    pb::RankGoodput& rank = *report.add_ranks();
    const GoodputTimes times = slot.Times(now);
    rank.mutable_us()->Assign(times.us.begin(), times.us.end());
    rank.set_bucket(static_cast<uint32_t>(slot.bucket()));
    if (slot.saved()) {
      rank.set_saved_age_us(MicrosecondsSince(slot.saved()->at, now));
      rank.set_saved_step(static_cast<uint64_t>(slot.saved()->step));
    }
    if (slot.copied()) {
      rank.set_copied_age_us(MicrosecondsSince(slot.copied()->at, now));
      rank.set_copied_step(static_cast<uint64_t>(slot.copied()->step));
    }
  }
  return report;
}

std::optional<SlotLedger::Stored> GoodputCore::NewestCopy() const {
  std::optional<SlotLedger::Stored> oldest;
  const size_t ranks = std::min(slots_.size(), workers_.ranks().all().size());
  for (size_t slot = 0; slot < ranks; ++slot) {
    const std::optional<SlotLedger::Stored>& copy = slots_[slot].copied();
    if (!copy) return std::nullopt;
    if (!oldest || copy->step < oldest->step) oldest = copy;
  }
  return oldest;
}

void GoodputCore::AddTo(AgentAction& action, Clock::time_point now) const {
  if (auto* const emit = std::get_if<agent_action::EmitEvent>(&action)) {
    if (emit->event.has_started()) *emit->event.mutable_started()->mutable_goodput() = Report(now);
  } else if (auto* const end = std::get_if<agent_action::EndEvents>(&action)) {
    *end->done.mutable_goodput() = Report(now);
  } else if (auto* const write = std::get_if<agent_action::WriteResult>(&action)) {
    *write->result.mutable_done()->mutable_goodput() = Report(now);
  }
}

bool GoodputCore::IsReportDue(Clock::time_point now) {
  if (!had_ranks_ || (reported_at_ && now - *reported_at_ < kReportEvery)) return false;
  reported_at_ = now;
  return true;
}

}  // namespace dslaunch
