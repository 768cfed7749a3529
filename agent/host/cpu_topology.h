// Reads this machine's CPU topology as /sys describes it.
//
// hwloc is not used: Debian's libhwloc.a needs libudev, which has no static library, and the agent
// must run on nodes that have only a C library. Four small files for each CPU are enough. They are
// a stable interface of the kernel, which torchrun and numactl read too.
#pragma once

#include <string>
#include <vector>

namespace dslaunch {

struct Cpu {
  int id = 0;
  int core = 0;    // lowest CPU on the same physical core
  int socket = 0;  // number of the physical package
  int cache = 0;   // lowest CPU that shares the last-level cache
};

struct NumaNode {
  int id = 0;
  std::vector<int> cpus;  // CPUs in ascending order; empty for a node with only memory
};

struct CpuTopology {
  std::vector<Cpu> cpus;  // usable CPUs, ascending
  // All nodes of the machine with all their CPUs, in ascending order. Never empty.
  std::vector<NumaNode> nodes;
};

// Reads the topology below `root`, which is "" except in tests. `usable`: the CPUs that may be
// used, in ascending order. Missing information defaults to one CPU per core, one socket and one
// NUMA node.
CpuTopology ReadCpuTopology(const std::string& root, const std::vector<int>& usable);

// Returns whether this process may choose NUMA nodes for its memory; in containers this is often
// forbidden.
bool MayBindMemory();

}  // namespace dslaunch
