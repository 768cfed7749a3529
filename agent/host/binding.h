// Which CPUs each rank of a machine runs on, and where its memory is. Pure.
#pragma once

#include <string>
#include <vector>

#include "agent/host/cpu_topology.h"
#include "agent/host/gpus.h"
#include "base/error.h"
#include "proto/job.pb.h"

namespace dslaunch {

struct BindingRequest {
  pb::RankOptions::Bind bind = pb::RankOptions::NONE;
  std::vector<int> cores = {};  // for CORES: to share out, ascending; empty: one CPU of each core
  int ranks = 1;                // of this machine
  // For the others: of each rank's GPU the NUMA node. Empty, without GPUs: ranks are spread evenly
  // over the NUMA nodes, in order.
  std::vector<int> gpu_nodes = {};
};

struct RankBinding {
  std::vector<int> cpus;          // ascending; empty: any
  std::vector<int> memory_nodes;  // empty: any
  bool memory_preferred = false;  // other nodes too, once these are full
  int threads = 0;                // for OMP_NUM_THREADS; 0: as without binding
};

// One for each rank; none for NONE.
//   CORES         as deepspeed --bind_cores_to_rank: cores / ranks of them each, in order, what is
//                 left over unused; as many threads. Memory of the NUMA node that has all of a
//                 rank's cores, if one has; where each such node has one of memory alone beside it
//                 (HBM in flat mode), preferably of that one.
//   NUMA_NODE, SOCKET, EXCLUSIVE, CORE_COMPLEX   as torchrun --numa_binding node, socket, exclusive
//                 (whole physical cores; the first ranks have one more where it does not come out
//                 even) and core-complex (the largest first, each as often as the next)
// Errors are kUsage and name the option, not the machine.
Result<std::vector<RankBinding>> DecideBinding(const CpuTopology& topology,
                                               const BindingRequest& request);

// The NUMA nodes of `devices`, as CUDA_VISIBLE_DEVICES names them. kUsage for one that is not
// known.
Result<std::vector<int>> GpuNodesOf(const std::vector<std::string>& devices,
                                    const std::vector<GpuPlace>& gpus);

}  // namespace dslaunch
