// Checks whether the nodes have memory for copies of the ranks' states (run.memory_checkpoint).
#pragma once

#include <optional>
#include <vector>

#include "proto/contract/worker_env.h"
#include "trainer/train/train_run.h"

namespace dslaunch {

// The memory that one rank needs for its copies, and the memory that its node has.
struct RankRoom {
  int node = 0;          // WorkerEnv::node_rank; 0 for all ranks if all nodes are one machine
  double needed = 0;     // bytes that the rank needs for its copies
  double available = 0;  // bytes that the node has for all its ranks; 0 if not known
};

struct NodeRoom {
  int node = 0;
  int ranks = 0;
  double needed = 0;  // bytes that all ranks of the node need for their copies
  double available = 0;
};

// Returns the first node that has too little memory; nullopt if every node has enough. Pure.
std::optional<NodeRoom> NodeWithoutRoom(const std::vector<RankRoom>& ranks);

// Returns whether all ranks can make copies; the value is the same on all ranks. If not, rank 0
// prints the reason: either the launcher gives the ranks no memory, or the named node has too
// little. Collective.
bool HasRoomForCopies(const TrainRun& run, const WorkerEnv& env);

}  // namespace dslaunch
