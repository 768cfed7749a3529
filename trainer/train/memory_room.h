// Whether the nodes have room for copies of the ranks' states (run.memory_checkpoint).
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
  double needed = 0;  // bytes, of all ranks of the node
  double available = 0;
};

// Returns the first node that lacks room; nullopt if every node has enough. Pure.
std::optional<NodeRoom> NodeWithoutRoom(const std::vector<RankRoom>& ranks);

// Collective. Returns whether every rank can make copies, the same on all ranks. Rank 0 prints why
// not: the launcher gives the ranks no memory, or a node, which it names, has no room.
bool HasRoomForCopies(const TrainRun& run, const WorkerEnv& env);

}  // namespace dslaunch
