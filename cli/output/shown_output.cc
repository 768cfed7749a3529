#include "cli/output/shown_output.h"

#include <algorithm>
#include <utility>

namespace dslaunch {

size_t ShownOutput::CountRanks(size_t world_size, size_t nodes, size_t slots) const {
  const auto by_rank = static_cast<size_t>(std::ranges::count_if(
      shown_ranks.ranks, [&](int rank) { return std::cmp_less(rank, world_size); }));
  size_t by_slot = 0;
  for (int slot = 0; std::cmp_less(slot, slots); ++slot) {
    const bool is_shown = !local_ranks || std::ranges::count(*local_ranks, slot) > 0;
    if (is_shown && log_only.Of(slot) != RankStreams::kBoth) ++by_slot;
  }
  return std::min(shown_ranks.all ? world_size : by_rank, nodes * by_slot);
}

std::string ShownOutput::Hint(size_t world_size) const {
  if (world_size < 2 || shown_ranks != ShownRanks() || local_ranks || log_only != RankStreams())
    return "";
  return "output of rank 0 follows (--show all: of every rank)";
}

pb::RankChoice ShownOutput::ToProto() const {
  pb::RankChoice choice;
  if (local_ranks && local_ranks->empty()) return choice;
  choice.set_all(shown_ranks.all);
  for (const int rank : shown_ranks.ranks) choice.add_ranks(static_cast<uint32_t>(rank));
  for (const int rank : local_ranks.value_or(std::vector<int>()))
    choice.add_local_ranks(static_cast<uint32_t>(rank));
  choice.set_left_out(log_only.of_others);
  for (const auto& [local_rank, streams] : log_only.of_local_rank)
    (*choice.mutable_left_out_of())[static_cast<uint32_t>(local_rank)] = streams;
  return choice;
}

}  // namespace dslaunch
