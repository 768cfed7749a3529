// The numbering of ranks: the nodes with ranks, in hostfile order, have one block of consecutive
// ranks each. The plan, the dry run and the rendezvous all number by this.
#pragma once

#include <cstdint>
#include <vector>

namespace dslaunch {

struct NodeSlots {
  uint32_t node_index = 0;  // in hostfile order
  uint32_t slots = 0;       // ranks to start there
};

// The ranks first_rank .. first_rank + slots - 1 of one node.
struct RankBlock {
  uint32_t node_index = 0;  // in hostfile order
  uint32_t node_rank = 0;   // place among the nodes with ranks
  uint32_t first_rank = 0;
  uint32_t slots = 0;
};

struct RankNumbering {
  std::vector<RankBlock> blocks;  // in hostfile order
  uint32_t world_size = 0;

  // nullptr: the node has no ranks. Logarithmic in the number of blocks.
  const RankBlock* BlockOf(uint32_t node_index) const;
  // The block with this rank; nullptr: there is no such rank. Logarithmic too.
  const RankBlock* BlockOfRank(uint32_t rank) const;
};

// `nodes` are those with ranks, each once, in any order.
RankNumbering NumberRanks(std::vector<NodeSlots> nodes);

}  // namespace dslaunch
