#include "agent/logs/rank_selection.h"

#include <algorithm>

namespace dslaunch {

RankSelection::RankSelection(const pb::RankChoice& choice)
    : all(choice.all()),
      ranks(choice.ranks().begin(), choice.ranks().end()),
      local_ranks(choice.local_ranks().begin(), choice.local_ranks().end()),
      left_out_of(choice.left_out_of().begin(), choice.left_out_of().end()),
      left_out(choice.left_out()) {}

bool RankSelection::Has(uint32_t rank, uint32_t local_rank, bool is_stderr) const {
  const auto named = left_out_of.find(local_rank);
  const uint32_t without = named == left_out_of.end() ? left_out : named->second;
  if ((without & (is_stderr ? 2u : 1u)) != 0) return false;
  return (all || std::ranges::count(ranks, rank) > 0) &&
         (local_ranks.empty() || std::ranges::count(local_ranks, local_rank) > 0);
}

}  // namespace dslaunch
