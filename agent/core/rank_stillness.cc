#include "agent/core/rank_stillness.h"

#include <algorithm>

namespace dslaunch {
namespace {

constexpr uint64_t kLeastCpuMs = 20;  // CPU time that does not count: two clock ticks, its unit
constexpr uint64_t kCpuShare = 50;    // share of CPU time that does not count, as 1/50 (2 %)
constexpr uint64_t kUsualFileBytes = 256;  // bytes of event descriptors and timers in each look
constexpr uint64_t kKeepAliveBytes = 2;    // bytes that NCCL's RAS sends per millisecond
constexpr uint32_t kExchangeLooks = 3;     // minimum number of looks with a digest of exchanges

// Returns whether a sum of counters grew by more than `tolerance`, or fell. A sum falls when a
// process or a connection ends, which is a sign of life too.
bool GrewBeyond(uint64_t before, uint64_t after, uint64_t tolerance) {
  return after < before || after - before > tolerance;
}

}  // namespace

bool ShowsLife(const RankSigns& before, const RankSigns& after, milliseconds gap, uint32_t looks,
               bool cpu_counts) {
  const uint64_t gap_ms = static_cast<uint64_t>(std::max<milliseconds::rep>(0, gap.count()));
  const uint64_t idle_cpu_ms = std::max(kLeastCpuMs, gap_ms / kCpuShare);
  const uint64_t store_bytes = after.store_bytes - std::min(after.store_bytes, before.store_bytes);
  const bool computes = GrewBeyond(before.child_cpu_ms, after.child_cpu_ms, idle_cpu_ms) ||
                        (cpu_counts && !after.has_gpu &&
                         GrewBeyond(before.own_cpu_ms, after.own_cpu_ms, idle_cpu_ms));
  const bool makes_exchange =
      before.exchanges != 0 && after.exchanges != 0 && after.exchanges != before.exchanges;
  const uint64_t keep_alive = after.has_gpu ? kKeepAliveBytes * gap_ms : 0;
  return computes || makes_exchange ||
         GrewBeyond(before.peer_bytes, after.peer_bytes, keep_alive) ||
         after.output_bytes != before.output_bytes || after.processes != before.processes ||
         after.signature != before.signature || after.has_gpu != before.has_gpu ||
         after.stopped != before.stopped ||
         GrewBeyond(before.file_bytes, after.file_bytes, store_bytes + kUsualFileBytes * looks);
}

void RankStillness::OnLook(const std::optional<RankSigns>& signs, milliseconds interval,
                           Clock::time_point now, bool wrote_dump) {
  milliseconds gap =
      looked_at_ ? std::chrono::duration_cast<milliseconds>(now - *looked_at_) : milliseconds(0);
  readable_ = signs.has_value();
  if (!signs) return;
  looked_at_ = now;
  connected_ = connected_ || signs->peer_bytes > 0;
  gap = std::min(gap, 2 * interval);
  if (wrote_dump) {
    IgnoreDump(*signs, any_);
    IgnoreDump(*signs, without_cpu_);
  }
  Update(*signs, gap, /*cpu_counts=*/true, any_);
  Update(*signs, gap, /*cpu_counts=*/false, without_cpu_);
  last_ = signs;
}

void RankStillness::Update(const RankSigns& signs, milliseconds gap, bool cpu_counts,
                           Stillness& since) {
  since.still += gap;
  ++since.looks;
  if (signs.exchanges != 0) ++since.exchange_looks;
  if (since.lived && since.lived->exchanges == 0) since.lived->exchanges = signs.exchanges;
  if (since.lived && !ShowsLife(*since.lived, signs, since.still, since.looks, cpu_counts)) return;
  since = {.lived = signs};
}

void RankStillness::IgnoreDump(const RankSigns& signs, Stillness& since) const {
  if (!since.lived || !last_) return;
  since.lived->file_bytes += signs.file_bytes - last_->file_bytes;
  since.lived->own_cpu_ms += signs.own_cpu_ms - last_->own_cpu_ms;
  // PyTorch logs each dump.
  since.lived->output_bytes += signs.output_bytes - last_->output_bytes;
}

std::optional<pb::Stillness> RankStillness::Report(uint32_t rank) const {
  if (!looked_at_ && !ended_) return std::nullopt;
  pb::Stillness stillness;
  stillness.set_rank(rank);
  const auto microseconds = [](milliseconds time) {
    return static_cast<uint64_t>(std::chrono::microseconds(time).count());
  };
  stillness.set_still_us(microseconds(any_.still));
  stillness.set_looks(any_.looks);
  stillness.set_only_cpu_us(microseconds(without_cpu_.still));
  stillness.set_readable(readable_ && !(last_->has_gpu && last_->signature == 0));
  stillness.set_connected(connected_);
  stillness.set_ended(ended_);
  stillness.set_has_gpu(last_ && last_->has_gpu);
  stillness.set_stopped(last_ && last_->stopped);
  stillness.set_unread_bytes(last_ ? last_->unread_bytes : 0);
  stillness.set_makes_no_exchange(without_cpu_.exchange_looks >= kExchangeLooks);
  return stillness;
}

}  // namespace dslaunch
