#include "rendezvous/standstill_check.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <utility>

#include "rendezvous/inspection.h"

namespace dslaunch {
namespace {

using std::chrono::seconds;

// A report is at most so many heartbeats old, because an older one hides signs of life.
constexpr int kFreshHeartbeats = 3;
// After an inquiry without a verdict, the next one follows when this part of the limit has passed.
constexpr int kAskAgainPart = 4;

uint32_t CountRanks(const Roster& roster) {
  uint32_t ranks = 0;
  for (const Participant& participant : roster.Joined()) {
    if (participant.in_attempt) ranks += participant.member.slots;
  }
  return ranks;
}

}  // namespace

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
  StandstillDecision decision = watch_.Check(now, options);
  const bool is_still = decision.kind != StandstillDecision::Kind::kNone && !watch_.is_reported();
  // A process needs CPU time to write what its Flight Recorder holds.
  options.ignore_cpu = true;
  const bool holds =
      is_still || (inquiry_ && inquiry_->asks_flight &&
                   watch_.Check(now, options).kind != StandstillDecision::Kind::kNone);
  if (inquiry_ && !inquiry_->hang && !holds) inquiry_.reset();
  if (!inquiry_) {
    if (!is_still || now < ask_after_) return std::nullopt;
    Ask(roster, now);
    inquiry_->decision = decision;
    return std::nullopt;
  }
  if (!inquiry_->awaited.empty() && now < inquiry_->until) return std::nullopt;
  const std::optional<HangDecision> hang = inquiry_->hang;
  if (inquiry_->asks_flight && !hang) decision = inquiry_->decision;
  const std::vector<RankEvidence> evidence = Evidence(roster, decision.limit);
  Verdict verdict;
  verdict.reason = hang ? hang->reason : decision.reason;
  const pb::RasReport* const ras = inquiry_->ras ? &*inquiry_->ras : nullptr;
  verdict.culprit = hang ? JudgeSteps(evidence, hang->ranks) : Judge(evidence, ras);
  if (!inquiry_->asks_flight && !verdict.culprit.sure && !inquiry_->stacks.empty()) {
    AskFlight(roster, now);
    return std::nullopt;
  }
  inquiry_.reset();
  ask_after_ = now + decision.limit / kAskAgainPart;
  if (verdict.culprit.rule == Culprit::Rule::kNoneWaits) return std::nullopt;
  if (!hang && decision.some_compute && !IsConfirmed(verdict.culprit, now)) return std::nullopt;
  watch_.OnReported();
  // Ranks that make no steps may show signs of life all the time.
  verdict.is_standstill = user_waits_ = is_still || (holds && !hang);
  verdict.text = verdict.reason;
  for (const std::string& line : verdict.culprit.lines) verdict.text += "\n" + line;
  return verdict;
}

bool StandstillCheck::IsConfirmed(const Culprit& culprit, Clock::time_point now) {
  using Rule = Culprit::Rule;
  // Ranks of a healthy job may spin in one exchange, or in several, at every look.
  const bool decides = culprit.rule == Rule::kStopped || culprit.rule == Rule::kEnded ||
                       culprit.rule == Rule::kOutside || culprit.rule == Rule::kFlight;
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
        rank.uses_cpu = life->still < limit;
        rank.computes_long = limit.count() > 0 && life->only_cpu >= kComputeFactor * limit;
        rank.has_gpu = life->has_gpu;
        rank.unread_bytes = life->unread_bytes;
      }
    }
  }
  std::ranges::sort(ranks, {}, &RankEvidence::rank);
  return ranks;
}

}  // namespace dslaunch
