// This machine's CPUs and where they are, as /sys has it.
//
// Read directly, not by hwloc: Debian's libhwloc.a needs libudev, of which there is no archive, and
// the agent must run on nodes that have only a C library. What is needed of it is four small files
// for each CPU, which are a stable interface of the kernel, and what torchrun and numactl read too.
#pragma once

#include <string>
#include <vector>

namespace dslaunch {

struct Cpu {
  int id = 0;
  int core = 0;    // the lowest CPU on the same physical core
  int socket = 0;  // physical package
  int cache = 0;   // the lowest CPU that shares its last-level cache
};

struct NumaNode {
  int id = 0;
  std::vector<int> cpus;  // ascending; none: memory alone
};

struct CpuTopology {
  std::vector<Cpu> cpus;        // that may be used, ascending
  std::vector<NumaNode> nodes;  // of the machine, with all CPUs; ascending, never none
};

// `root` is "" but in tests; `usable` are the CPUs that may be used, ascending. What is not to be
// found is taken for the simplest case: one CPU a core, one socket, one NUMA node.
CpuTopology ReadCpuTopology(const std::string& root, const std::vector<int>& usable);

// Whether this process may choose NUMA nodes for memory: containers often may not.
bool MayBindMemory();

}  // namespace dslaunch
