#include "proto/contract/rank_numbering.h"

#include <algorithm>
#include <iterator>

namespace dslaunch {

const RankBlock* RankNumbering::BlockOf(uint32_t node_index) const {
  const auto block = std::ranges::lower_bound(blocks, node_index, {}, &RankBlock::node_index);
  return block != blocks.end() && block->node_index == node_index ? &*block : nullptr;
}

const RankBlock* RankNumbering::BlockOfRank(uint32_t rank) const {
  const auto next = std::ranges::upper_bound(blocks, rank, {}, &RankBlock::first_rank);
  return rank < world_size && next != blocks.begin() ? &*std::prev(next) : nullptr;
}

RankNumbering NumberRanks(std::vector<NodeSlots> nodes) {
  std::ranges::sort(nodes, {}, &NodeSlots::node_index);
  RankNumbering ranks;
  ranks.blocks.reserve(nodes.size());
  for (const NodeSlots& node : nodes) {
    const auto node_rank = static_cast<uint32_t>(ranks.blocks.size());
    ranks.blocks.push_back({node.node_index, node_rank, ranks.world_size, node.slots});
    ranks.world_size += node.slots;
  }
  return ranks;
}

}  // namespace dslaunch
