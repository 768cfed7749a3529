// Decides on which CPUs each rank of a machine runs, and in which NUMA nodes its memory is. Reads
// no files.
#pragma once

#include <string>
#include <vector>

#include "agent/host/cpu_topology.h"
#include "base/error.h"
#include "proto/job.pb.h"

namespace dslaunch {

struct BindingRequest {
  pb::RankOptions::Bind bind = pb::RankOptions::NONE;
  // Cores to divide among the ranks (for CORES), ascending; if empty, one CPU of each core.
  std::vector<int> cores = {};
  int ranks = 1;  // number of ranks on this machine
  // NUMA node of each rank's GPU (for other bindings). If empty because there are no GPUs, ranks
  // are spread evenly over the NUMA nodes, in order.
  std::vector<int> gpu_nodes = {};
};

struct RankBinding {
  std::vector<int> cpus;          // CPUs that the rank may use, ascending; empty for all CPUs
  std::vector<int> memory_nodes;  // NUMA nodes for the rank's memory; empty for all nodes
  bool memory_preferred = false;  // whether other nodes may be used when `memory_nodes` are full
  int threads = 0;                // OMP_NUM_THREADS of the rank; 0 to leave it unchanged
};

// Returns one binding per rank; empty for NONE. Fails with kUsage; the message names the option,
// but not the machine.
// - CORES: as deepspeed --bind_cores_to_rank. Each rank gets cores / ranks of the cores, in order,
//   and as many threads; the remainder is unused. Memory comes from the NUMA node that contains all
//   of a rank's cores, if any. If each such node has a node with only memory beside it (HBM in flat
//   mode), the node with only memory is preferred.
// - NUMA_NODE, SOCKET: as torchrun --numa_binding node and socket.
// - EXCLUSIVE: as torchrun --numa_binding exclusive, with whole physical cores. If the division
//   leaves a remainder, the first ranks get one more core.
// - CORE_COMPLEX: as torchrun --numa_binding core-complex. Uses the largest complexes first, and
//   each equally often.
Result<std::vector<RankBinding>> DecideBinding(const CpuTopology& topology,
                                               const BindingRequest& request);

}  // namespace dslaunch
