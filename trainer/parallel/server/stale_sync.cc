#include "trainer/parallel/server/stale_sync.h"

#include <algorithm>

namespace dslaunch {

StaleSync::StaleSync(int ranks, int64_t staleness, int64_t first_step)
    : staleness_(staleness),
      hold_(first_step),
      ranks_(static_cast<size_t>(ranks), Rank{.made = first_step}) {}

StaleSync::Turn StaleSync::TurnOf(int rank) const {
  if (stopped_) return Turn::kStop;
  const std::optional<int> slowest = Slowest();
  const int64_t ahead = slowest ? made(rank) - made(*slowest) : 0;
  return made(rank) < hold_ && ahead <= staleness_ ? Turn::kGo : Turn::kWait;
}

void StaleSync::OnBegun(int rank) { At(rank).in_step = true; }

bool StaleSync::OnMade(int rank, int64_t step) {
  Rank& one = At(rank);
  if (!one.in_step || step != one.made + 1) return false;
  one.in_step = false;
  one.made = step;
  return true;
}

void StaleSync::OnLeft(int rank) {
  At(rank).left = true;
  At(rank).in_step = false;
}

void StaleSync::OnLost(int rank) {
  At(rank).lost = true;
  At(rank).in_step = false;
}

bool StaleSync::AllMade(int64_t step) const {
  return std::ranges::all_of(ranks_, [&](const Rank& one) { return one.lost || one.made >= step; });
}

bool StaleSync::NoRankInStep() const { return std::ranges::none_of(ranks_, &Rank::in_step); }

std::vector<int> StaleSync::lost() const {
  std::vector<int> lost;
  for (size_t rank = 0; rank < ranks_.size(); ++rank) {
    if (ranks_[rank].lost) lost.push_back(static_cast<int>(rank));
  }
  return lost;
}

std::optional<int> StaleSync::Slowest() const {
  std::optional<int> slowest;
  for (size_t rank = 0; rank < ranks_.size(); ++rank) {
    if (!ranks_[rank].goes_on()) continue;
    if (!slowest || ranks_[rank].made < made(*slowest)) slowest = static_cast<int>(rank);
  }
  return slowest;
}

}  // namespace dslaunch
