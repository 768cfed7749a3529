#include "rendezvous/standstill_check.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <limits>
#include <utility>

#include "rendezvous/inspection.h"

namespace dslaunch {
namespace {

using std::chrono::seconds;

// Maximum age of a report, in heartbeats. An older report could miss signs of life.
constexpr int kFreshHeartbeats = 3;
// Divisor of the limit: after an inquiry without a verdict, the next inquiry begins once a quarter
// of the limit has passed.
constexpr int kAskAgainPart = 4;

uint32_t CountRanks(const Roster& roster) {
  uint32_t ranks = 0;
  for (const Participant& participant : roster.Joined()) {
    if (participant.in_attempt) ranks += participant.member.slots;
  }
  return ranks;
}

}  // namespace

bool StandstillCheck::OnReport(const pb::Stillness& report, const pb::Policy& policy,
                               Clock::time_point now) {
  watch_.OnReport(report, now);
  if (watch_.is_reported() || inquiry_) return false;
  const RankLife& life = *watch_.Find(report.rank());
  const auto still = std::max(life.still, life.only_cpu);
  return std::ranges::any_of(
      std::array{milliseconds(policy.setup_hang_ms()), milliseconds(policy.standstill_ms())},
      [&](milliseconds limit) {
        return limit.count() > 0 && still >= limit - StandstillLead(limit);
      });
}

bool StandstillCheck::OnInspected(const pb::Inspected& inspected) {
  if (!inquiry_ || inspected.look() != inquiry_->look ||
      inspected.has_flight() != inquiry_->asks_flight)
    return false;
  const uint32_t rank = inspected.stacks().rank();
  if (inquiry_->awaited.erase(rank) == 0) return false;
  if (inspected.has_ras() && inspected.ras().trouble().empty() && !inquiry_->ras)
    inquiry_->ras = inspected.ras();
  if (inquiry_->asks_flight)
    inquiry_->flights.emplace(rank, inspected.flight()).first->second.set_rank(rank);
  else
    inquiry_->stacks.emplace(rank, inspected.stacks());
  return inquiry_->awaited.empty();
}

std::optional<StandstillCheck::Verdict> StandstillCheck::Check(const pb::Policy& policy,
                                                               const pb::Timeouts& timeouts,
                                                               Roster& roster,
                                                               Clock::time_point now) {
  StandstillOptions options;
  options.setup = milliseconds(policy.setup_hang_ms());
  options.hang = milliseconds(policy.standstill_ms());
  options.freshness = kFreshHeartbeats * milliseconds(timeouts.heartbeat_ms()) + kAnswerWithin;
  options.world_size = CountRanks(roster);
  if (!watch_.is_reported() && std::exchange(user_waits_, false))
    roster.Notify("the ranks move again", pb::Notice::OVER);
  const StandstillDecision decision = watch_.Check(now, options);
  const bool is_still = decision.kind != StandstillDecision::Kind::kNone && !watch_.is_reported();
  if (!is_still) culprit_.reset();
  if (inquiry_ && !inquiry_->hang && !is_still) inquiry_.reset();
  const std::optional<HangDecision> hang = inquiry_ ? inquiry_->hang : std::nullopt;
  if (!inquiry_ && is_still && !culprit_ && now >= ask_after_) {
    Ask(roster, now);
    return std::nullopt;
  }
  if (inquiry_ && (inquiry_->awaited.empty() || now >= inquiry_->until))
    culprit_ = JudgeAnswers(decision, roster, now);
  if (!culprit_ || (!hang && decision.kind != StandstillDecision::Kind::kStandstill))
    return std::nullopt;
  Verdict verdict;
  verdict.reason = hang ? hang->reason : decision.reason;
  verdict.culprit = *std::exchange(culprit_, std::nullopt);
  // The ranks may complete no steps but still show signs of life, so this is a standstill only if
  // they show none.
  verdict.is_standstill = user_waits_ = is_still;
  verdict.text = verdict.reason;
  for (const std::string& line : verdict.culprit.lines) verdict.text += "\n" + line;
  watch_.OnReported();
  return verdict;
}

std::optional<Culprit> StandstillCheck::JudgeAnswers(const StandstillDecision& decision,
                                                     Roster& roster, Clock::time_point now) {
  const std::vector<RankEvidence> evidence = Evidence(roster, decision.limit);
  const pb::RasReport* const ras = inquiry_->ras ? &*inquiry_->ras : nullptr;
  const bool steps_stopped = inquiry_->hang.has_value();
  Culprit culprit =
      steps_stopped ? JudgeSteps(evidence, inquiry_->hang->ranks) : Judge(evidence, ras);
  if (!inquiry_->asks_flight && !culprit.sure && !inquiry_->stacks.empty()) {
    AskFlight(roster, now);
    return std::nullopt;
  }
  ask_after_ = NextInquiry(evidence, decision.limit, now);
  const bool is_confirmed =
      steps_stopped || !decision.some_compute || IsConfirmed(culprit, evidence, now);
  inquiry_.reset();
  if (culprit.rule == Culprit::Rule::kNoneWaits || !is_confirmed) return std::nullopt;
  return culprit;
}

Clock::time_point StandstillCheck::NextInquiry(const std::vector<RankEvidence>& ranks,
                                               milliseconds limit, Clock::time_point now) const {
  Clock::time_point next = now + limit / kAskAgainPart;
  for (const RankEvidence& rank : ranks) {
    const RankLife* const life = watch_.Find(rank.rank);
    if (life == nullptr || !rank.uses_cpu || rank.computes_long) continue;
    const auto left = kComputeFactor * limit - StandstillLead(limit) - life->only_cpu;
    next = std::min(next, now + std::chrono::duration_cast<Clock::duration>(left));
  }
  return next;
}

bool StandstillCheck::IsConfirmed(const Culprit& culprit, const std::vector<RankEvidence>& ranks,
                                  Clock::time_point now) {
  using Rule = Culprit::Rule;
  bool decides = culprit.rule == Rule::kStopped || culprit.rule == Rule::kEnded ||
                 culprit.rule == Rule::kOutside || culprit.rule == Rule::kFlight;
  // Ranks of a healthy job may be seen spinning in one or several exchanges at every look, so these
  // rules decide only if no rank uses CPU time.
  if (culprit.rule == Rule::kOtherPlace || culprit.rule == Rule::kUnknown) {
    decides = std::ranges::all_of(ranks, [](const RankEvidence& rank) {
      return !rank.uses_cpu || rank.ended || rank.makes_no_exchange;
    });
  }
  if (!decides || culprit.ranks != std::exchange(suspects_, culprit.ranks)) confirmations_ = 0;
  if (!decides) return false;
  if (++confirmations_ >= kSpinLooks) return true;
  ask_after_ = now + kBetweenSpinLooks;
  return false;
}

void StandstillCheck::OnHang(const HangDecision& hang, Roster& roster, Clock::time_point now) {
  if (watch_.is_reported()) return;
  if (!inquiry_) Ask(roster, now);
  inquiry_->hang = hang;
}

void StandstillCheck::Ask(Roster& roster, Clock::time_point now) {
  Inquiry& inquiry = inquiry_.emplace(++last_look_, now + kAnswerWithin);
  inquiry.awaited = SendInquiry(roster, {});
}

void StandstillCheck::AskFlight(Roster& roster, Clock::time_point now) {
  inquiry_->asks_flight = true;
  inquiry_->until = now + kRecordsWithin;
  pb::Inspect inspect;
  inspect.set_flight(true);
  inquiry_->awaited = SendInquiry(roster, inspect);
}

std::set<uint32_t> StandstillCheck::SendInquiry(Roster& roster, const pb::Inspect& inspect) const {
  pb::Inspect numbered = inspect;
  numbered.set_look(inquiry_->look);
  return SendInspect(roster, numbered, std::numeric_limits<size_t>::max(),
                     [&](const Participant&, uint32_t rank) {
                       if (inquiry_->asks_flight) return inquiry_->stacks.contains(rank);
                       const RankLife* const life = watch_.Find(rank);
                       return life == nullptr || !life->ended;
                     });
}

std::vector<RankEvidence> StandstillCheck::Evidence(const Roster& roster,
                                                    milliseconds limit) const {
  std::vector<RankEvidence> ranks;
  for (const Participant& participant : roster.Joined()) {
    if (!participant.in_attempt) continue;
    for (uint32_t slot = 0; slot < participant.member.slots; ++slot) {
      RankEvidence& rank = ranks.emplace_back();
      rank.rank = participant.first_rank + slot;
      rank.node = roster.NodeName(participant.member.node_index);
      rank.local_rank = slot;
      if (const auto stacks = inquiry_->stacks.find(rank.rank); stacks != inquiry_->stacks.end())
        rank.stacks = &stacks->second;
      if (const auto flight = inquiry_->flights.find(rank.rank); flight != inquiry_->flights.end())
        rank.flight = &flight->second;
      if (const RankLife* life = watch_.Find(rank.rank)) {
        rank.still = std::chrono::duration_cast<seconds>(life->still);
        rank.ended = life->ended;
        rank.stopped = life->stopped;
        const milliseconds lead = StandstillLead(limit);
        rank.uses_cpu = life->still < limit - lead;
        rank.computes_long = limit.count() > 0 && life->only_cpu >= kComputeFactor * limit - lead;
        rank.makes_no_exchange = life->makes_no_exchange;
        rank.has_gpu = life->has_gpu;
        rank.unread_bytes = life->unread_bytes;
      }
    }
  }
  std::ranges::sort(ranks, {}, &RankEvidence::rank);
  return ranks;
}

}  // namespace dslaunch
