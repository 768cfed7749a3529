#include "rendezvous/standstill.h"

#include <algorithm>
#include <cstdio>

#include "base/count.h"

namespace dslaunch {
namespace {

using std::chrono::microseconds;

constexpr uint32_t kLeastLooks = 6;

// Returns the value of an option in seconds: "600", "0.5".
std::string Number(milliseconds value) {
  char text[32];
  std::snprintf(text, sizeof text, "%g", static_cast<double>(value.count()) / 1000);
  return text;
}

}  // namespace

StandstillDecision DecideStandstill(Clock::time_point now, const std::vector<RankLife>& lives,
                                    const StandstillOptions& options) {
  if (options.world_size < 2 || lives.size() < options.world_size) return {};
  microseconds shortest = microseconds::max();
  uint32_t fewest_looks = UINT32_MAX;
  bool connected = false;
  bool any_runs = false;
  for (const RankLife& life : lives) {
    connected = connected || life.connected;
    if (life.ended) {
      shortest =
          std::min(shortest, std::chrono::duration_cast<microseconds>(now - life.reported_at));
      continue;
    }
    if (!life.judged || now - life.reported_at > options.freshness) return {};
    any_runs = true;
    shortest = std::min(shortest, life.still);
    fewest_looks = std::min(fewest_looks, life.looks);
  }
  const milliseconds limit = connected ? options.hang : options.setup;
  if (!any_runs || limit.count() == 0 || shortest < limit || fewest_looks < kLeastLooks) return {};
  StandstillDecision decision;
  decision.kind = StandstillDecision::Kind::kStandstill;
  decision.still = shortest;
  decision.limit = limit;
  decision.reason = "no rank has moved for " + WholeSeconds(shortest) +
                    (connected ? " (--hang_s " : " since the start (--hang_s setup=") +
                    Number(limit) + ")";
  return decision;
}

void StandstillWatch::OnReport(const pb::Stillness& report, Clock::time_point now) {
  if (report.rank() >= lives_.size()) lives_.resize(report.rank() + 1);
  std::optional<RankLife>& life = lives_[report.rank()];
  const microseconds still = ReportedMicroseconds(report.still_us());
  const bool moved = !life || still < life->still || report.ended() != life->ended;
  if (moved) is_reported_ = false;
  const bool ended_before = life && life->ended && report.ended();
  const Clock::time_point ended_at = ended_before ? life->reported_at : now;
  life.emplace();
  life->rank = report.rank();
  life->reported_at = ended_at;
  life->still = still;
  life->looks = report.looks();
  life->judged = report.readable();
  life->connected = report.connected();
  life->ended = report.ended();
  life->has_gpu = report.has_gpu();
  life->stopped = report.stopped();
  life->unread_bytes = report.unread_bytes();
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
