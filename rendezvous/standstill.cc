#include "rendezvous/standstill.h"

#include <algorithm>
#include <cstdio>

#include "base/count.h"

namespace dslaunch {
namespace {

using std::chrono::microseconds;

constexpr uint32_t kLeastLooks = 6;

// Returns a time in seconds as an option would give it, such as "600" or "0.5".
std::string Number(milliseconds value) {
  char text[32];
  std::snprintf(text, sizeof text, "%g", static_cast<double>(value.count()) / 1000);
  return text;
}

}  // namespace

milliseconds StandstillLead(milliseconds limit) {
  constexpr milliseconds kMostLead(2'000);
  constexpr int kPart = 4;
  return std::min(kMostLead, limit / kPart);
}

StandstillDecision DecideStandstill(Clock::time_point now, const std::vector<RankLife>& lives,
                                    const StandstillOptions& options) {
  if (options.world_size < 2 || lives.size() < options.world_size) return {};
  const bool connected = std::ranges::any_of(lives, &RankLife::connected);
  const milliseconds limit = connected ? options.hang : options.setup;
  if (limit.count() == 0) return {};
  const milliseconds soon = limit - StandstillLead(limit);
  StandstillDecision decision;
  decision.limit = limit;
  decision.still = microseconds::max();
  bool any_runs = false;
  bool any_is_still = false;
  for (const RankLife& life : lives) {
    if (life.ended) {
      any_is_still = true;
      decision.still = std::min(decision.still,
                                std::chrono::duration_cast<microseconds>(now - life.reported_at));
      continue;
    }
    if (!life.judged || now - life.reported_at > options.freshness) return {};
    any_runs = true;
    const bool is_still = life.still >= soon && life.looks >= kLeastLooks;
    any_is_still = any_is_still || is_still || life.makes_no_exchange;
    decision.some_compute = decision.some_compute || !is_still;
    if (!is_still && life.only_cpu < soon) return {};
    decision.still = std::min(decision.still, std::max(life.still, life.only_cpu));
  }
  if (!any_runs || !any_is_still || decision.still < soon) return {};
  decision.kind = decision.still < limit ? StandstillDecision::Kind::kSoon
                                         : StandstillDecision::Kind::kStandstill;
  decision.reason = "no rank has moved for " + WholeSeconds(decision.still) +
                    (connected ? " (--hang_s " : " since the start (--hang_s setup=") +
                    Number(limit) + ")";
  return decision;
}

void StandstillWatch::OnReport(const pb::Stillness& report, Clock::time_point now) {
  if (report.rank() >= lives_.size()) lives_.resize(report.rank() + 1);
  std::optional<RankLife>& life = lives_[report.rank()];
  const microseconds still = ReportedMicroseconds(report.still_us());
  const microseconds only_cpu = ReportedMicroseconds(report.only_cpu_us());
  const bool moved = !life || report.ended() != life->ended ||
                     std::max(still, only_cpu) < std::max(life->still, life->only_cpu);
  if (moved) is_reported_ = false;
  const bool ended_before = life && life->ended && report.ended();
  const Clock::time_point ended_at = ended_before ? life->reported_at : now;
  life.emplace();
  life->rank = report.rank();
  life->reported_at = ended_at;
  life->still = still;
  life->only_cpu = only_cpu;
  life->looks = report.looks();
  life->judged = report.readable();
  life->connected = report.connected();
  life->ended = report.ended();
  life->has_gpu = report.has_gpu();
  life->stopped = report.stopped();
  life->unread_bytes = report.unread_bytes();
  life->makes_no_exchange = report.makes_no_exchange();
}

void StandstillWatch::OnStall(Clock::time_point now) {
  for (std::optional<RankLife>& life : lives_) {
    if (life && life->ended) life->reported_at = now;
  }
}

StandstillDecision StandstillWatch::Check(Clock::time_point now,
                                          const StandstillOptions& options) const {
  std::vector<RankLife> lives;
  for (const std::optional<RankLife>& life : lives_) {
    if (life) lives.push_back(*life);
  }
  return DecideStandstill(now, lives, options);
}

const RankLife* StandstillWatch::Find(uint32_t rank) const {
  return rank < lives_.size() && lives_[rank] ? &*lives_[rank] : nullptr;
}

}  // namespace dslaunch
