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
  if (!inquiry_ || inspected.look() != inquiry_->look) return false;
  const uint32_t rank = inspected.stacks().rank();
  if (inquiry_->awaited.erase(rank) == 0) return false;
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
  if (inquiry_ && !inquiry_->hang && !is_still) inquiry_.reset();
  if (!inquiry_) {
    if (is_still && now >= ask_after_) Ask(roster, now);
    return std::nullopt;
  }
  if (!inquiry_->awaited.empty() && now < inquiry_->until) return std::nullopt;
  const std::optional<HangDecision> hang = inquiry_->hang;
  const std::vector<RankEvidence> evidence = Evidence(roster);
  Verdict verdict;
  verdict.reason = hang ? hang->reason : decision.reason;
  verdict.culprit = hang ? JudgeSteps(evidence, hang->ranks) : Judge(evidence);
  inquiry_.reset();
  ask_after_ = now + decision.limit / kAskAgainPart;
  if (verdict.culprit.rule == Culprit::Rule::kNoneWaits) return std::nullopt;
  watch_.OnReported();
  // Ranks that make no steps may show signs of life all the time.
  verdict.is_standstill = user_waits_ = is_still;
  verdict.text = verdict.reason;
  for (const std::string& line : verdict.culprit.lines) verdict.text += "\n" + line;
  return verdict;
}

void StandstillCheck::OnHang(const HangDecision& hang, Roster& roster, Clock::time_point now) {
  if (watch_.is_reported()) return;
  if (!inquiry_) Ask(roster, now);
  inquiry_->hang = hang;
}

void StandstillCheck::Ask(Roster& roster, Clock::time_point now) {
  Inquiry& inquiry = inquiry_.emplace(++last_look_, now + kAnswerWithin);
  pb::Inspect inspect;
  inspect.set_look(inquiry.look);
  inquiry.awaited = SendInspect(roster, inspect, std::numeric_limits<size_t>::max(),
                                [&](const Participant&, uint32_t rank) {
                                  const RankLife* const life = watch_.Find(rank);
                                  return life == nullptr || !life->ended;
                                });
}

std::vector<RankEvidence> StandstillCheck::Evidence(const Roster& roster) const {
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
      if (const RankLife* life = watch_.Find(rank.rank)) {
        rank.still = std::chrono::duration_cast<seconds>(life->still);
        rank.ended = life->ended;
        rank.stopped = life->stopped;
        rank.has_gpu = life->has_gpu;
        rank.unread_bytes = life->unread_bytes;
      }
    }
  }
  std::ranges::sort(ranks, {}, &RankEvidence::rank);
  return ranks;
}

}  // namespace dslaunch
