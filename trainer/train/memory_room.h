// Checks whether the nodes have memory for copies of the ranks' states (run.memory_checkpoint).
#pragma once

#include <optional>
#include <vector>

#include "proto/contract/worker_env.h"
#include "trainer/train/train_run.h"

namespace dslaunch {

// The memory that one rank needs, and that its node has.
struct RankRoom {
  int node = 0;          // WorkerEnv::node_rank; 0 for all ranks if all nodes are one machine
  double needed = 0;     // bytes
  double available = 0;  // bytes of its node, for all ranks there; 0: not known
};

struct NodeRoom {
  int node = 0;
  int ranks = 0;
  double needed = 0;  // bytes, over all ranks of the node
  double available = 0;
};

// Returns the first node that lacks room; nullopt if every node has enough. Pure.
std::optional<NodeRoom> NodeWithoutRoom(const std::vector<RankRoom>& ranks);

// Collective. Returns whether all ranks can make copies, the same on all ranks. If not, rank 0
// prints the reason: the launcher gives the ranks no memory, or the node that the line names has
// too little.
bool HasRoomForCopies(const TrainRun& run, const WorkerEnv& env);

}  // namespace dslaunch
