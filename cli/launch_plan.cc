#include "cli/launch_plan.h"

#include <algorithm>

#include "cli/count.h"

namespace dslaunch {
namespace {

Error Usage(std::string message) { return {ExitCode::kUsage, std::move(message)}; }

Launcher LauncherFor(const LaunchOptions& options, const PlanFacts& facts) {
  if (options.launcher) return *options.launcher;
  return options.hostfile || facts.default_hostfile_exists ? Launcher::kSsh : Launcher::kLocal;
}

// How many nodes the user asked to have ranks, as the user said it.
std::string AskedFor(const LaunchOptions& options, int nodes) {
  return (options.min_nodes ? "up to " + std::to_string(nodes) + " nodes"
                            : "--num_nodes " + std::to_string(nodes));
}

// Nodes that nobody named: all on this machine.
Result<LaunchPlan> PlanWithoutHosts(const LaunchOptions& options, const PlanFacts& facts) {
  const int num_nodes =
      options.max_nodes.value_or(options.num_nodes.value_or(options.min_nodes.value_or(1)));
  if (options.launcher == Launcher::kSsh) {
    return Usage(
        "--launcher ssh needs to know the nodes: add --hostfile FILE with a line 'NAME slots=N' "
        "for each");
  }
  if (num_nodes > 1 && !options.launcher) {
    return Usage(
        AskedFor(options, num_nodes) +
        " needs to know the nodes: add --hostfile FILE with a line 'NAME slots=N' for each, or add "
        "--launcher local to run them all on this machine");
  }
  LaunchPlan plan;
  const int slots = options.num_gpus.value_or(std::max(1, facts.local_gpus / num_nodes));
  if (!options.num_gpus) {
    plan.slots_note = facts.local_gpus == 0
                          ? "1 slot per node as this machine has no GPU; --num_gpus N starts more"
                          : "slots from the " +
                                Count(static_cast<size_t>(facts.local_gpus), "GPU") +
                                " of this machine";
  }
  for (int i = 0; i < num_nodes; ++i) {
    PlannedNode node;
    node.name = num_nodes == 1 ? "localhost" : "node" + std::to_string(i);
    node.host = "localhost";
    node.slots = slots;
    plan.nodes.push_back(std::move(node));
  }
  return plan;
}

// The first nodes of the file that are no spares have ranks. Its spares stand by, and in an elastic
// job the nodes beyond the most that may have ranks do too.
Result<LaunchPlan> PlanWithHosts(const LaunchOptions& options, const std::vector<Host>& hosts,
                                 const std::string& hostfile) {
  const int regular =
      static_cast<int>(std::ranges::count(hosts, false, [](const Host& h) { return h.spare; }));
  const bool elastic = options.min_nodes.has_value();
  const int wanted = (elastic ? options.max_nodes : options.num_nodes).value_or(regular);
  if (regular == 0) {
    return Usage("every node of " + hostfile +
                 " is a spare; take spare=true from those that are to have ranks");
  }
  if (wanted > regular || (elastic && *options.min_nodes > regular)) {
    const bool has_spares = static_cast<size_t>(regular) < hosts.size();
    return Usage(AskedFor(options, std::max(wanted, options.min_nodes.value_or(0))) + ", but " +
                 hostfile + " has only " + Count(static_cast<size_t>(regular), "node") +
                 (has_spares ? " besides its spares" : "") + "; add lines to it or ask for fewer");
  }
  LaunchPlan plan;
  int with_ranks = 0;
  for (const Host& host : hosts) {
    const bool beyond = !host.spare && with_ranks == wanted;
    if (beyond && !elastic) continue;
    if (options.num_gpus && *options.num_gpus > host.slots) {
      return Usage("--num_gpus " + std::to_string(*options.num_gpus) + ", but " + host.name +
                   " has slots=" + std::to_string(host.slots) + " (" + hostfile + ":" +
                   std::to_string(host.line) + "); raise slots there or ask for fewer");
    }
    PlannedNode node;
    node.name = host.name;
    node.host = host.host;
    node.port = host.port != 0 ? host.port : options.ssh_port;
    node.user = host.user;
    node.slots = options.num_gpus.value_or(host.slots);
    node.spare = host.spare || beyond;
    if (!node.spare) ++with_ranks;
    plan.nodes.push_back(std::move(node));
  }
  return plan;
}

}  // namespace

std::optional<std::string> HostfileFor(const LaunchOptions& options, const PlanFacts& facts) {
  if (options.hostfile) return options.hostfile;
  if (facts.default_hostfile_exists && options.launcher != Launcher::kLocal)
    return kDefaultHostfile;
  return std::nullopt;
}

Result<LaunchPlan> MakeLaunchPlan(const LaunchOptions& options,
                                  const std::optional<std::vector<Host>>& hosts,
                                  const PlanFacts& facts) {
  DSL_TRY_ASSIGN(LaunchPlan plan,
                 hosts ? PlanWithHosts(options, *hosts, options.hostfile.value_or(kDefaultHostfile))
                       : PlanWithoutHosts(options, facts));
  plan.launcher = LauncherFor(options, facts);
  plan.max_nodes = 0;
  for (PlannedNode& node : plan.nodes) {
    if (node.spare) continue;
    ++plan.max_nodes;
    node.first_rank = plan.world_size;
    plan.world_size += node.slots;
  }
  plan.min_nodes = options.min_nodes.value_or(plan.max_nodes);
  if (!options.tee.all && !options.tee.ranks.empty() &&
      options.tee.ranks.back() >= plan.world_size) {
    return Usage("--tee " + std::to_string(options.tee.ranks.back()) +
                 ": no such rank, this job has " +
                 (plan.world_size == 1 ? "rank 0 only"
                                       : "ranks 0 to " + std::to_string(plan.world_size - 1)));
  }
  return plan;
}

std::string PlanLine(const LaunchPlan& plan, std::string_view device) {
  const bool equal =
      std::all_of(plan.nodes.begin(), plan.nodes.end(),
                  [&](const PlannedNode& node) { return node.slots == plan.nodes.front().slots; });
  std::vector<std::string> names;
  std::vector<std::string> spares;
  for (const PlannedNode& node : plan.nodes) {
    (node.spare ? spares : names)
        .push_back(equal ? node.name : node.name + "(" + std::to_string(node.slots) + ")");
  }
  const bool elastic = plan.min_nodes < plan.max_nodes;
  std::string line = (elastic ? std::to_string(plan.min_nodes) + " to " : "") +
                     Count(static_cast<size_t>(plan.max_nodes), "node");
  const auto slots = static_cast<size_t>(plan.nodes.front().slots);
  line += equal ? " x " + Count(slots, "slot") : " with unequal slots";
  line += std::string(" = ") + (elastic ? "up to " : "") +
          Count(static_cast<size_t>(plan.world_size), "rank");
  line += plan.launcher == Launcher::kSsh ? " (ssh, " : " (local, ";
  line += std::string(device) + "): " + NameList(names, " ");
  if (!spares.empty()) {
    line += (spares.size() == 1 ? ", spare: " : ", spares: ") + NameList(spares, " ");
  }
  if (!plan.slots_note.empty()) line += " (" + plan.slots_note + ")";
  return line;
}

Result<DeviceDecision> DecideDevice(DeviceChoice requested, const std::vector<NodeGpus>& nodes,
                                    bool one_machine) {
  if (requested == DeviceChoice::kCpu) return DeviceDecision{false, "CPU, as --device cpu says"};
  int all_slots = 0;
  int all_gpus = 0;
  for (const NodeGpus& node : nodes) {
    all_slots += node.slots;
    all_gpus += node.gpus;
  }
  std::vector<std::string> lacking;
  for (const NodeGpus& node : nodes) {
    const int needed = one_machine ? all_slots : node.slots;
    if (node.gpus >= needed) continue;
    lacking.push_back(node.name + " has " + Count(static_cast<size_t>(node.gpus), "GPU") + " for " +
                      Count(static_cast<size_t>(needed), "slot"));
    if (one_machine) break;  // every other node would say the same
  }
  if (lacking.empty()) {
    return DeviceDecision{true, requested == DeviceChoice::kCuda ? "CUDA, as --device cuda says"
                                                                 : "CUDA, as every slot has a GPU"};
  }
  if (requested == DeviceChoice::kAuto && all_gpus == 0) {
    return DeviceDecision{false, "CPU, as no node has an NVIDIA GPU"};
  }
  if (one_machine) lacking.front().replace(0, nodes.front().name.size(), "this machine");
  const std::string asked = requested == DeviceChoice::kCuda ? "--device cuda" : "--device auto";
  return Usage(asked + ": not every slot has a GPU: " + NameList(lacking, ", ") +
               "; ask for fewer slots (--num_gpus), or add --device cpu");
}

}  // namespace dslaunch
