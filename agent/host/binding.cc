#include "agent/host/binding.h"

#include <algorithm>
#include <map>

#include "base/text/cpu_list.h"

namespace dslaunch {
namespace {

using Cpus = std::vector<Cpu>;

Error Refused(const std::string& message) { return Error{ExitCode::kUsage, message}; }

std::vector<int> Ids(const Cpus& cpus) {
  std::vector<int> ids;
  for (const Cpu& cpu : cpus) ids.push_back(cpu.id);
  return ids;
}

// Returns the CPUs of a NUMA node that the job may use.
Cpus UsableOf(const CpuTopology& topology, const NumaNode& node) {
  Cpus usable;
  for (const Cpu& cpu : topology.cpus) {
    if (std::ranges::binary_search(node.cpus, cpu.id)) usable.push_back(cpu);
  }
  return usable;
}

// Returns the CPUs grouped by the value of `member`, such as the core that they share.
std::map<int, Cpus> GroupsBy(const Cpus& cpus, int Cpu::*member) {
  std::map<int, Cpus> groups;
  for (const Cpu& cpu : cpus) groups[cpu.*member].push_back(cpu);
  return groups;
}

// --- Binding CORES ---

// Sets the NUMA nodes for the memory of a rank, depending on the rank's CPUs.
void BindMemory(const CpuTopology& topology, RankBinding& binding) {
  if (topology.nodes.size() < 2) return;
  std::vector<int> with_cpus;
  std::vector<int> memory_alone;
  for (const NumaNode& node : topology.nodes) {
    if (node.cpus.empty()) {
      memory_alone.push_back(node.id);
      continue;
    }
    with_cpus.push_back(node.id);
    // NUMA nodes with the same CPUs are one node that the kernel splits (boot option numa=fake), so
    // the rank may use the memory of all of them.
    if (std::ranges::includes(node.cpus, binding.cpus)) binding.memory_nodes.push_back(node.id);
  }
  if (memory_alone.size() != with_cpus.size()) return;
  for (int& node : binding.memory_nodes)
    node =
        memory_alone[static_cast<size_t>(std::ranges::find(with_cpus, node) - with_cpus.begin())];
  binding.memory_preferred = true;
}

Result<std::vector<RankBinding>> ShareCores(const CpuTopology& topology,
                                            const BindingRequest& request) {
  std::vector<int> cores = request.cores;
  const std::vector<int> usable = Ids(topology.cpus);
  for (const int core : cores) {
    if (std::ranges::binary_search(usable, core)) continue;
    return Refused("--bind_core_list: there is no CPU " + std::to_string(core) +
                   " for this job; there are " + CpuListText(usable));
  }
  if (cores.empty()) {
    for (const auto& [core, cpus] : GroupsBy(topology.cpus, &Cpu::core))
      cores.push_back(cpus.front().id);
    std::ranges::sort(cores);
  }
  const auto ranks = static_cast<size_t>(request.ranks);
  const size_t each = cores.size() / ranks;
  if (each == 0) {
    return Refused("--bind_cores_to_rank: " + std::to_string(ranks) + " ranks cannot share " +
                   std::to_string(cores.size()) + " cores (" + CpuListText(cores) +
                   "); start fewer ranks or name more cores with --bind_core_list");
  }
  std::vector<RankBinding> bindings(ranks);
  for (size_t rank = 0; rank < ranks; ++rank) {
    RankBinding& binding = bindings[rank];
    const auto first = cores.begin() + static_cast<std::ptrdiff_t>(rank * each);
    binding.cpus.assign(first, first + static_cast<std::ptrdiff_t>(each));
    binding.threads = static_cast<int>(each);
    BindMemory(topology, binding);
  }
  return bindings;
}

// --- Bindings of torchrun ---

// Returns for each rank the index of the NUMA node on whose CPUs the rank runs.
Result<std::vector<size_t>> NodesOfRanks(const CpuTopology& topology,
                                         const BindingRequest& request) {
  std::vector<size_t> with_cpus;
  for (size_t i = 0; i < topology.nodes.size(); ++i) {
    if (!UsableOf(topology, topology.nodes[i]).empty()) with_cpus.push_back(i);
  }
  if (with_cpus.empty()) return Refused("--numa_binding: no NUMA node has a CPU for this job");
  std::vector<size_t> of_ranks;
  const auto ranks = static_cast<size_t>(request.ranks);
  for (size_t rank = 0; rank < ranks; ++rank) {
    if (request.gpu_nodes.empty()) {
      of_ranks.push_back(with_cpus[rank * with_cpus.size() / ranks]);
      continue;
    }
    const auto found = std::ranges::find_if(
        with_cpus, [&](size_t i) { return topology.nodes[i].id == request.gpu_nodes[rank]; });
    if (found == with_cpus.end()) {
      return Refused("--numa_binding: the GPU of local rank " + std::to_string(rank) +
                     " is on NUMA node " + std::to_string(request.gpu_nodes[rank]) +
                     ", which has no CPU for this job; leave the option out");
    }
    of_ranks.push_back(*found);
  }
  return of_ranks;
}

Cpus OfSocket(const CpuTopology& topology, const Cpus& node_cpus) {
  // torchrun counts all CPUs of a NUMA node as CPUs of the socket of the node's first CPU, so this
  // function does the same.
  Cpus all;
  for (const NumaNode& node : topology.nodes) {
    const Cpus usable = UsableOf(topology, node);
    if (usable.empty() || usable.front().socket != node_cpus.front().socket) continue;
    all.insert(all.end(), usable.begin(), usable.end());
  }
  std::ranges::sort(all, {}, &Cpu::id);
  return all;
}

// Returns the CPUs of the rank at index `place` among `count` ranks on one NUMA node.
Result<Cpus> ExclusiveShare(const Cpus& node_cpus, int node_id, size_t place, size_t count) {
  const std::map<int, Cpus> cores = GroupsBy(node_cpus, &Cpu::core);
  const size_t each = cores.size() / count;
  if (each == 0) {
    return Refused("--numa_binding exclusive: " + std::to_string(count) +
                   " ranks cannot share the " + std::to_string(cores.size()) +
                   " cores of NUMA node " + std::to_string(node_id) + "; start fewer ranks");
  }
  const size_t extra = cores.size() % count;
  const size_t begin = place * each + std::min(place, extra);
  const size_t end = begin + each + (place < extra ? 1 : 0);
  Cpus share;
  size_t at = 0;
  for (const auto& [core, cpus] : cores) {
    if (at >= begin && at < end) share.insert(share.end(), cpus.begin(), cpus.end());
    ++at;
  }
  std::ranges::sort(share, {}, &Cpu::id);
  return share;
}

Cpus CoreComplex(const Cpus& node_cpus, size_t place) {
  std::vector<Cpus> complexes;
  for (auto& [cache, cpus] : GroupsBy(node_cpus, &Cpu::cache)) complexes.push_back(cpus);
  std::ranges::stable_sort(complexes,
                           [](const Cpus& a, const Cpus& b) { return a.size() > b.size(); });
  return complexes[place % complexes.size()];
}

Result<std::vector<RankBinding>> BindToNodes(const CpuTopology& topology,
                                             const BindingRequest& request) {
  DSL_TRY_ASSIGN(const std::vector<size_t> nodes, NodesOfRanks(topology, request));
  std::vector<RankBinding> bindings;
  for (size_t rank = 0; rank < nodes.size(); ++rank) {
    const NumaNode& node = topology.nodes[nodes[rank]];
    const auto place = static_cast<size_t>(
        std::count(nodes.begin(), nodes.begin() + static_cast<std::ptrdiff_t>(rank), nodes[rank]));
    const auto count = static_cast<size_t>(std::ranges::count(nodes, nodes[rank]));
    Cpus cpus = UsableOf(topology, node);
    if (request.bind == pb::RankOptions::SOCKET) {
      cpus = OfSocket(topology, cpus);
    } else if (request.bind == pb::RankOptions::EXCLUSIVE) {
      DSL_TRY_ASSIGN(cpus, ExclusiveShare(cpus, node.id, place, count));
    } else if (request.bind == pb::RankOptions::CORE_COMPLEX) {
      cpus = CoreComplex(cpus, place);
    }
    bindings.emplace_back().cpus = Ids(cpus);
  }
  return bindings;
}

}  // namespace

Result<std::vector<RankBinding>> DecideBinding(const CpuTopology& topology,
                                               const BindingRequest& request) {
  if (request.bind == pb::RankOptions::NONE) return std::vector<RankBinding>();
  if (request.bind == pb::RankOptions::CORES) return ShareCores(topology, request);
  return BindToNodes(topology, request);
}

}  // namespace dslaunch
