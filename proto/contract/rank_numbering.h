// Numbers the ranks. Each node with ranks gets one block of consecutive ranks, in hostfile order.
// The plan, the dry run and the rendezvous use the same numbering.
#pragma once

#include <cstdint>
#include <vector>

namespace dslaunch {

struct NodeSlots {
  uint32_t node_index = 0;  // index of the node in hostfile order
  uint32_t slots = 0;       // number of ranks to start on the node
};

// The ranks first_rank .. first_rank + slots - 1, which run on one node.
struct RankBlock {
  uint32_t node_index = 0;  // index of the node in hostfile order
  uint32_t node_rank = 0;   // index of the node among the nodes with ranks
  uint32_t first_rank = 0;
  uint32_t slots = 0;
};

struct RankNumbering {
  std::vector<RankBlock> blocks;  // blocks in hostfile order
  uint32_t world_size = 0;

  // Returns the block of a node; nullptr if the node has no ranks. The time is logarithmic in the
  // number of blocks.
  const RankBlock* BlockOf(uint32_t node_index) const;
  // Returns the block that contains `rank`; nullptr if there is no such rank. The time is
  // logarithmic in the number of blocks.
  const RankBlock* BlockOfRank(uint32_t rank) const;
};

// Numbers the ranks of `nodes`. Precondition: `nodes` contains each node with ranks once, in any
// order.
RankNumbering NumberRanks(std::vector<NodeSlots> nodes);

}  // namespace dslaunch
