// Reads this machine's CPU topology from /sys.
//
// The agent must run on nodes that have only a C library. Debian's libhwloc.a needs libudev, which
// has no static library, so hwloc is not used. Four small files for each CPU are enough. They are a
// stable interface of the kernel, which torchrun and numactl read too.
#pragma once

#include <string>
#include <vector>

namespace dslaunch {

struct Cpu {
  int id = 0;
  int core = 0;    // lowest CPU on the same physical core, as its identifier
  int socket = 0;  // number of the physical package
  int cache = 0;   // lowest CPU that shares the last-level cache, as its identifier
};

struct NumaNode {
  int id = 0;
  std::vector<int> cpus;  // CPUs in ascending order; empty if the node has only memory
};

struct CpuTopology {
  std::vector<Cpu> cpus;  // CPUs that the job may use, ascending
  // All NUMA nodes of the machine with all their CPUs, in ascending order; never empty.
  std::vector<NumaNode> nodes;
};

// Returns the topology below `root`, which is "" except in tests. `usable` contains the CPUs that
// may be used, in ascending order. If files are missing, assumes one CPU per core, one socket and
// one NUMA node.
CpuTopology ReadCpuTopology(const std::string& root, const std::vector<int>& usable);

// Returns whether this process may choose NUMA nodes for its memory, which containers often forbid.
bool MayBindMemory();

}  // namespace dslaunch
