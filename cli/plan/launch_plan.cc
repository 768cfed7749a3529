#include "cli/plan/launch_plan.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "base/count.h"
#include "base/text/sanitize.h"
#include "cli/plan/safe_variables.h"
#include "hostfiles/host_filter.h"

namespace dslaunch {
namespace {

Error Usage(std::string message) { return {ExitCode::kUsage, std::move(message)}; }

// Returns the launcher. As in DeepSpeed, the only node of a hostfile needs no SSH if it is this
// machine, unless an option of SSH is given.
Launcher LauncherFor(const LaunchOptions& options, const PlanInfo& info, bool has_hosts,
                     bool by_slurm, const std::vector<Host>& nodes) {
  if (options.launcher) return *options.launcher;
  if (!options.exec_command.empty()) return Launcher::kExec;
  if (options.force_multi) return Launcher::kSsh;
  if (!has_hosts && !by_slurm) return Launcher::kLocal;
  const bool about_ssh = options.ssh_port != 0 || !options.ssh_command.empty();
  const Host& first = nodes.front();
  const bool is_here =
      !about_ssh && nodes.size() == 1 && IsThisMachine(first.host, first.port, first.user, info);
  if (is_here) return Launcher::kLocal;
  return by_slurm ? Launcher::kSlurm : Launcher::kSsh;
}

// Returns the number of nodes with ranks in the form in which the user specified it.
std::string AskedFor(const LaunchOptions& options, int nodes) {
  return (options.min_nodes ? "up to " + std::to_string(nodes) + " nodes"
                            : options.num_nodes_name + " " + std::to_string(nodes));
}

const char* NameOf(SlotsFrom from) {
  return from == SlotsFrom::kCpu ? "cpu" : from == SlotsFrom::kGpu ? "gpu" : "auto";
}

// Returns an error if there are more ranks than devices shown by variables such as
// CUDA_VISIBLE_DEVICES. If these variables show no device, the job runs on the CPU.
Result<void> CheckShownGpus(const LaunchOptions& options, const PlanInfo& info, int num_nodes) {
  if (info.device_limits.empty() || options.device == DeviceChoice::kCpu) return {};
  const int shown = info.local_gpus;
  const int ranks = *options.num_gpus * num_nodes;
  if (shown == 0 || ranks <= shown) return {};
  const std::string num_gpus = options.num_gpus_name + " " + std::to_string(*options.num_gpus);
  return Usage((num_nodes == 1 ? num_gpus
                               : std::to_string(num_nodes) + " nodes x " + num_gpus + " = " +
                                     std::to_string(ranks) + " ranks on this machine") +
               ", but " + info.device_limits + " shows " + CountText(*info.accelerator, shown) +
               "; unset it, ask for " + std::to_string(shown / num_nodes) +
               " or fewer, or add --device cpu");
}

// Returns the number of slots of each of `num_nodes` nodes on this machine, for a job without a
// hostfile.
Result<int> LocalSlots(const LaunchOptions& options, const PlanInfo& info, int num_nodes,
                       std::string& note) {
  if (!info.gpu_trouble.empty() && options.device != DeviceChoice::kCpu)
    return Usage(info.gpu_trouble);
  if (options.num_gpus) {
    DSL_TRY(CheckShownGpus(options, info, num_nodes));
    return *options.num_gpus;
  }
  if (options.slots_from == SlotsFrom::kGpu && info.local_gpus < num_nodes) {
    return Usage("--nproc_per_node gpu: this machine has " +
                 CountText(*info.accelerator, info.local_gpus) +
                 (num_nodes == 1 ? "" : " for " + std::to_string(num_nodes) + " nodes") +
                 "; give a number, or cpu");
  }
  if (info.local_gpus > 0 && options.slots_from != SlotsFrom::kCpu) {
    note = "slots from the " + CountText(*info.accelerator, info.local_gpus) + " of this machine";
    return std::max(1, info.local_gpus / num_nodes);
  }
  if (options.slots_from) {
    note = "slots from the " + Count(static_cast<size_t>(info.cores), "core") + " of this machine";
    return std::max(1, info.cores / num_nodes);
  }
  note = "1 slot per node as this machine has no GPU; --num_gpus N starts more";
  return 1;
}

Host LocalNode(std::string name, int slots) {
  Host node;
  node.name = std::move(name);
  node.host = "localhost";
  node.slots = slots;
  return node;
}

// Returns whether --include or --exclude is given.
bool IsFiltered(const LaunchOptions& options) { return options.include || options.exclude; }

Result<std::vector<Host>> Filtered(const LaunchOptions& options, const std::vector<Host>& hosts,
                                   const std::string& source) {
  const FilterKind kind = options.include ? FilterKind::kInclude : FilterKind::kExclude;
  return FilterHosts(hosts, kind, options.include ? *options.include : *options.exclude, source);
}

// Plans a job on the accelerators of this machine that a filter such as `localhost:0,2` chooses, or
// on its cores if this machine has no accelerators.
Result<LaunchPlan> PlanFilteredMachine(const LaunchOptions& options, const PlanInfo& info) {
  Host machine;
  machine.name = machine.host = "localhost";
  machine.slots =
      std::clamp(info.installed_gpus > 0 ? info.installed_gpus : info.cores, 1, kMaxSlots);
  DSL_TRY_ASSIGN(const std::vector<Host> chosen, Filtered(options, {machine}, "this machine"));
  LaunchPlan plan;
  plan.nodes.push_back(LocalNode("localhost", chosen.front().slots));
  plan.nodes.front().devices = chosen.front().devices;
  if (info.installed_gpus == 0) {
    plan.slots_note = "of the " + Count(static_cast<size_t>(info.cores), "core") +
                      " of this machine, as it has no GPU";
  } else if (!info.device_limits.empty() && !plan.nodes.front().devices.empty()) {
    plan.slots_note = info.device_limits + " is not used, as " +
                      (options.include ? "--include" : "--exclude") + " chooses the " +
                      std::string(info.accelerator->noun) + "s";
  }
  return plan;
}

// Plans a job without a hostfile, whose nodes are all on this machine.
Result<LaunchPlan> PlanWithoutHosts(const LaunchOptions& options, const PlanInfo& info) {
  const int num_nodes =
      options.max_nodes.value_or(options.num_nodes.value_or(options.min_nodes.value_or(1)));
  if (options.launcher == Launcher::kSlurm) {
    return Usage(
        "--launcher slurm: this shell is in no allocation of Slurm's (SLURM_JOB_ID and "
        "SLURM_JOB_NODELIST are not set); get one by salloc -N 2, have dslaunch get one "
        "(--slurm_args '-N 2'), or run this in a script for sbatch");
  }
  if (options.launcher == Launcher::kPbs && !options.force_multi) {
    return Usage(
        "--launcher pbs: this shell is in no job of PBS's (PBS_NODEFILE is not set); get one by "
        "qsub -I -l nodes=2, or run this in a script for qsub");
  }
  if (((options.launcher && RowOf(*options.launcher).needs_nodes) ||
       !options.exec_command.empty()) &&
      !options.force_multi) {
    return Usage(
        (!options.exec_command.empty() ? "--exec_command" : LauncherOption(*options.launcher)) +
        " needs to know the nodes: add --hostfile FILE with a line 'NAME slots=N' for each");
  }
  if (num_nodes > 1 && !options.launcher) {
    return Usage(
        AskedFor(options, num_nodes) +
        " needs to know the nodes: add --hostfile FILE with a line 'NAME slots=N' for each, or add "
        "--launcher local to run them all on this machine");
  }
  if (IsFiltered(options)) return PlanFilteredMachine(options, info);
  LaunchPlan plan;
  DSL_TRY_ASSIGN(const int slots, LocalSlots(options, info, num_nodes, plan.slots_note));
  for (int i = 0; i < num_nodes; ++i) {
    plan.nodes.push_back(
        LocalNode(num_nodes == 1 ? "localhost" : "node" + std::to_string(i), slots));
    plan.nodes.back().port = options.ssh_port;
  }
  return plan;
}

// Gives ranks to the first nodes of the file that are not spares. Spares get no ranks at first, and
// neither do the nodes of an elastic job beyond its largest number of nodes.
Result<LaunchPlan> PlanWithHosts(const LaunchOptions& options, const std::vector<Host>& hosts,
                                 const std::string& hostfile) {
  const int regular =
      static_cast<int>(std::ranges::count(hosts, false, [](const Host& h) { return h.spare; }));
  const bool elastic = options.min_nodes.has_value();
  const int wanted = (elastic ? options.max_nodes : options.num_nodes).value_or(regular);
  if (options.slots_from) {
    return Usage(std::string("--nproc_per_node ") + NameOf(*options.slots_from) +
                 ": the slots in " + hostfile +
                 " set the number of ranks of each node; leave the option out, or give a number");
  }
  if (regular == 0) {
    return Usage(std::string("every node ") + (IsFiltered(options) ? "that is left of " : "of ") +
                 hostfile + " is a spare; take spare=true from those that are to have ranks");
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
      return Usage(options.num_gpus_name + " " + std::to_string(*options.num_gpus) + ", but " +
                   host.name + " has slots=" + std::to_string(host.slots) + " (" + hostfile + ":" +
                   std::to_string(host.line) + "); raise slots there or ask for fewer");
    }
    Host node = host;
    if (node.port == 0) node.port = options.ssh_port;
    node.slots = options.num_gpus.value_or(host.slots);
    node.spare = host.spare || beyond;
    if (!node.spare) ++with_ranks;
    plan.nodes.push_back(std::move(node));
  }
  return plan;
}

// Plans the nodes that remain after the filters. `source` is the hostfile, or another source of the
// hosts, for messages.
Result<LaunchPlan> PlanFrom(const LaunchOptions& options, const std::vector<Host>& hosts,
                            const std::string& source) {
  if (!IsFiltered(options)) return PlanWithHosts(options, hosts, source);
  DSL_TRY_ASSIGN(const std::vector<Host> chosen, Filtered(options, hosts, source));
  return PlanWithHosts(options, chosen, source);
}

Result<LaunchPlan> PlanFromFile(const LaunchOptions& options, const std::vector<Host>& hosts) {
  const std::string hostfile =
      options.hosts.empty() ? Truncate(options.hostfile.value_or(kDefaultHostfile)) : "--hosts";
  const auto has_port = [](const Host& host) { return host.port != 0; };
  const auto with_port = std::ranges::find_if(hosts, has_port);
  if (!options.exec_command.empty() && with_port != hosts.end()) {
    return Usage(with_port->name + " has port " + std::to_string(with_port->port) + " (" +
                 hostfile + ":" + std::to_string(with_port->line) +
                 "), which is for SSH; take it out there, or leave --exec_command out");
  }
  if (!options.hostfile_is_trusted) DSL_TRY(CheckVariables(hosts, hostfile));
  return PlanFrom(options, hosts, hostfile);
}

// Returns a note for the user about how the slots of Slurm's nodes were chosen.
std::string SlurmSlotsNote(const SlurmAllocation& allocation, bool by_cores, bool by_tasks) {
  if (by_cores) return "slots from the cores that Slurm gave";
  if (by_tasks) return "slots from the tasks that Slurm was asked for";
  const bool any_gpus = std::ranges::any_of(
      allocation.nodes, [](int gpus) { return gpus > 0; }, &SlurmNode::gpus);
  const std::string unknown =
      allocation.gpus_unknown.empty() ? "" : SanitizeForTerminal(allocation.gpus_unknown);
  if (any_gpus) {
    return unknown.empty() ? "slots from the GPUs that Slurm gave"
                           : "slots from the GPUs that Slurm's variables name, as " + unknown;
  }
  return "1 slot per node as " +
         (unknown.empty() ? "Slurm gave no GPUs" : "its GPUs are not known: " + unknown) +
         "; --num_gpus N starts more";
}

// Plans the nodes of Slurm's allocation. Each node has a slot for each requested task, or else for
// each GPU; the user's options override both.
Result<LaunchPlan> PlanFromSlurm(LaunchOptions options, const SlurmAllocation& allocation) {
  const auto slots_from = std::exchange(options.slots_from, std::nullopt);
  const auto has_gpus = [](const SlurmNode& node) { return node.gpus > 0; };
  const bool any_gpus = std::ranges::any_of(allocation.nodes, has_gpus);
  if (slots_from == SlotsFrom::kGpu && !any_gpus) {
    return Usage(
        "--nproc_per_node gpu: job " + allocation.job_id +
        (allocation.gpus_unknown.empty()
             ? " of Slurm has no GPUs; ask it for some by --gpus-per-node, or give a number"
             : " of Slurm: its GPUs are not known (" +
                   SanitizeForTerminal(allocation.gpus_unknown) + "); give a number"));
  }
  const bool by_cores =
      slots_from == SlotsFrom::kCpu || (slots_from == SlotsFrom::kAuto && !any_gpus);
  const bool by_tasks =
      !slots_from && std::ranges::any_of(
                         allocation.nodes, [](int tasks) { return tasks > 1; }, &SlurmNode::tasks);
  std::vector<Host> hosts;
  for (const SlurmNode& node : allocation.nodes) {
    Host& host = hosts.emplace_back();
    host.name = host.host = node.name;
    host.component = node.component;
    host.slots = options.num_gpus ? *options.num_gpus
                 : by_cores       ? node.cores
                 : by_tasks       ? node.tasks
                                  : std::max(node.gpus, 1);
    host.slots = std::min(host.slots, kMaxSlots);
  }
  DSL_TRY_ASSIGN(LaunchPlan plan,
                 PlanFrom(options, hosts, "job " + allocation.job_id + " of Slurm"));
  for (const SlurmNode& node : allocation.nodes)
    plan.slurm_shares[node.name] = {node.component, node.gpus, node.gres};
  if (!options.num_gpus) plan.slots_note = SlurmSlotsNote(allocation, by_cores, by_tasks);
  return plan;
}

// Plans the nodes of a job of PBS, LSF or SGE. Slots of such a job are mostly cores, so if this
// machine has GPUs, each node gets as many slots as this machine has GPUs.
Result<LaunchPlan> PlanFromBatch(LaunchOptions options, const BatchNodes& batch,
                                 const PlanInfo& info) {
  const auto slots_from = std::exchange(options.slots_from, std::nullopt);
  if (slots_from == SlotsFrom::kGpu && info.local_gpus == 0) {
    return Usage("--nproc_per_node gpu: this machine, by which the GPUs of the nodes of " +
                 batch.variable + " are counted, has none; give a number");
  }
  const bool by_gpus = info.local_gpus > 0 && slots_from != SlotsFrom::kCpu;
  std::vector<Host> hosts = batch.hosts;
  for (Host& host : hosts) {
    if (options.num_gpus) host.slots = *options.num_gpus;
    if (!options.num_gpus && by_gpus) host.slots = std::min(info.local_gpus, kMaxSlots);
  }
  DSL_TRY_ASSIGN(LaunchPlan plan, PlanFrom(options, hosts, batch.variable));
  plan.slots_note = options.num_gpus ? "nodes from " + batch.variable
                    : by_gpus
                        ? "nodes from " + batch.variable + ", slots from the " +
                              CountText(*info.accelerator, info.local_gpus) + " of this machine"
                        : "nodes and slots from " + batch.variable;
  return plan;
}

// Returns whether the list contains only this machine.
bool IsThisMachineAlone(const BatchNodes& batch, const PlanInfo& info) {
  return batch.hosts.size() == 1 &&
         IsThisMachine(batch.hosts.front().host, batch.hosts.front().port, batch.hosts.front().user,
                       info);
}

// Returns the options with the number of all ranks as the number of slots of this machine.
LaunchOptions OnOneNode(LaunchOptions options) {
  const bool counts = options.num_gpus || options.slots_from || IsFiltered(options);
  const std::optional<int> ranks = options.num_ranks ? options.num_ranks : options.min_ranks;
  if (ranks && !counts) options.num_gpus = std::min(*ranks, kMaxSlots);
  return options;
}

Error TooFewSlots(const std::string& option, int wanted, int64_t nodes, int64_t slots) {
  return Usage(option + " " + std::to_string(wanted) + ", but " +
               Count(static_cast<size_t>(nodes), "node") + (nodes == 1 ? " has " : " have ") +
               Count(static_cast<size_t>(slots), "slot") +
               "; add nodes or slots, or ask for fewer ranks");
}

// Fills the nodes in their order until they have `wanted` ranks, and removes the others. Spares are
// kept.
Result<void> KeepRanks(std::vector<Host>& nodes, int wanted) {
  int64_t slots = 0;
  for (const Host& node : nodes) slots += node.spare ? 0 : node.slots;
  if (slots < wanted) {
    return TooFewSlots(
        "--num_proc", wanted,
        std::ranges::count(nodes, false, [](const Host& node) { return node.spare; }), slots);
  }
  int left = wanted;
  for (Host& node : nodes) {
    if (node.spare) continue;
    node.slots = std::min(node.slots, left);
    left -= node.slots;
    if (!node.devices.empty()) node.devices.resize(static_cast<size_t>(node.slots));
  }
  std::erase_if(nodes, [](const Host& node) { return !node.spare && node.slots == 0; });
  return {};
}

// Converts a range of ranks to a range of nodes, because a job grows and shrinks by whole nodes.
// For example, 4 to 8 ranks on nodes with 4 slots are 1 to 2 nodes. Nodes beyond the range become
// spares.
Result<void> KeepRankRange(const LaunchOptions& options, LaunchPlan& plan) {
  std::vector<Host*> regular;
  const int slots = plan.nodes.front().slots;
  for (Host& node : plan.nodes) {
    if (node.slots != slots) {
      return Usage(
          "--min_np and --max_np: the job grows and shrinks by whole nodes, which must be "
          "equal, but " +
          plan.nodes.front().name + " has " + Count(static_cast<size_t>(slots), "slot") + " and " +
          node.name + " has " + std::to_string(node.slots) +
          "; add --num_gpus N, the ranks of each node, or give a range of nodes in their "
          "place (--nnodes MIN:MAX)");
    }
    if (!node.spare) regular.push_back(&node);
  }
  const auto nodes = static_cast<int>(regular.size());
  const int all = nodes * slots;
  const int begins_with = std::max(options.num_ranks.value_or(0), *options.min_ranks);
  if (begins_with > all)
    return TooFewSlots(begins_with == *options.min_ranks ? "--min_np" : "-np", begins_with, nodes,
                       all);
  const int most = std::min(options.max_ranks.value_or(all), all);
  if (most % slots != 0) {
    const int below = most - most % slots;
    return Usage("--max_np " + std::to_string(most) +
                 ": the job grows and shrinks by whole nodes, of " +
                 Count(static_cast<size_t>(slots), "rank") + " each; ask for " +
                 (below >= begins_with ? std::to_string(below) + " or " : "") +
                 std::to_string(below + slots) +
                 ", or give the nodes another number of ranks (--num_gpus N)");
  }
  for (int i = most / slots; i < nodes; ++i) regular[static_cast<size_t>(i)]->spare = true;
  plan.min_nodes = (*options.min_ranks + slots - 1) / slots;
  plan.start_nodes = (begins_with + slots - 1) / slots;
  return {};
}

// Returns an error for options that name nodes in two ways, and for a Slurm allocation that cannot
// be used.
Result<void> CheckSources(const LaunchOptions& options, bool hosts, const PlanInfo& info) {
  if (options.force_multi && options.launcher == Launcher::kLocal) {
    return Usage(
        "--force_multi reaches every node over SSH, --launcher local none; leave one of them out");
  }
  if (options.launcher == Launcher::kSlurm && hosts) {
    return Usage(
        "--launcher slurm takes the nodes of Slurm's allocation, --hostfile those of a file; leave "
        "one of them out (--include and --exclude choose among Slurm's)");
  }
  if (UsesSlurm(options, info) && !info.slurm.ok()) {
    return Error{info.slurm.error().code,
                 info.slurm.error().message +
                     "; --launcher local or --hostfile FILE does without Slurm's nodes"};
  }
  return {};
}

}  // namespace

bool IsThisMachine(const std::string& host, int port, const std::string& user,
                   const PlanInfo& info) {
  return port == 0 && (user.empty() || user == info.user) &&
         std::ranges::count(info.own_names, host) > 0;
}

bool UsesSlurm(const LaunchOptions& options, const PlanInfo& info) {
  const bool is_known = info.slurm.ok();
  if (options.per_node || (is_known && !*info.slurm)) return false;
  if (options.launcher) return options.launcher == Launcher::kSlurm;
  const bool names_nodes = options.hostfile || !options.hosts.empty();
  if (names_nodes || !options.exec_command.empty() || options.force_multi) return false;
  return !is_known || !(*info.slurm)->in_step_of_many;
}

bool UsesBatchNodes(const LaunchOptions& options, const PlanInfo& info) {
  if (!info.batch || options.per_node || UsesSlurm(options, info)) return false;
  if (options.launcher && !RowOf(*options.launcher).needs_nodes) return false;
  const bool names_nodes = options.hostfile || !options.hosts.empty();
  return !names_nodes && options.exec_command.empty() &&
         (options.launcher || !IsThisMachineAlone(*info.batch, info));
}

std::optional<std::string> HostfileFor(const LaunchOptions& options, const PlanInfo& info) {
  if (options.hostfile) return options.hostfile;
  if (!options.hosts.empty() || UsesSlurm(options, info) || UsesBatchNodes(options, info))
    return std::nullopt;
  if (info.default_hostfile_exists && options.launcher != Launcher::kLocal) return kDefaultHostfile;
  return std::nullopt;
}

Result<LaunchPlan> MakeLaunchPlan(const LaunchOptions& options,
                                  const std::optional<std::vector<Host>>& hosts,
                                  const PlanInfo& info) {
  DSL_TRY(CheckSources(options, hosts.has_value(), info));
  const bool by_slurm = UsesSlurm(options, info);
  const bool uses_batch = !hosts && UsesBatchNodes(options, info);
  const bool by_batch = uses_batch && !info.batch->hosts.empty();
  DSL_TRY_ASSIGN(LaunchPlan plan, hosts      ? PlanFromFile(options, *hosts)
                                  : by_slurm ? PlanFromSlurm(options, **info.slurm)
                                  : by_batch ? PlanFromBatch(options, *info.batch, info)
                                             : PlanWithoutHosts(OnOneNode(options), info));
  if (uses_batch && !by_batch) {
    plan.slots_note += (plan.slots_note.empty() ? "" : "; ") + info.batch->variable +
                       " is not used: " + info.batch->unusable;
  }
  if (options.has_rank_range()) {
    DSL_TRY(KeepRankRange(options, plan));
  } else if (options.num_ranks) {
    DSL_TRY(KeepRanks(plan.nodes, *options.num_ranks));
  }
  plan.launcher = LauncherFor(options, info, hosts || by_batch, by_slurm, plan.nodes);
  if (plan.launcher == Launcher::kSsh && !options.launcher && !options.force_multi) {
    for (Host& node : plan.nodes)
      node.is_here = IsThisMachine(node.host, node.port, node.user, info);
  }
  if (plan.launcher == Launcher::kSlurm &&
      (options.ssh_port != 0 || !options.ssh_command.empty())) {
    return Usage(std::string(options.ssh_port != 0 ? "--ssh_port" : "--ssh_command") +
                 " is for SSH, which a job in an allocation of Slurm's does not use; leave it out, "
                 "or give --hostfile");
  }
  const LauncherRow& launcher = RowOf(plan.launcher);
  if (options.detach && !launcher.no_detach.empty())
    return Usage("--detach: " + std::string(launcher.no_detach));
  if (launcher.way == Way::kEachNode) {
    plan.exec_command = options.exec_command;
    for (const std::string_view word : launcher.node_command) plan.exec_command.emplace_back(word);
  }
  if (launcher.way == Way::kAllAtOnce) plan.exec_command.emplace_back(launcher.program);
  if (plan.launcher == Launcher::kSlurm)
    plan.exec_command.push_back("--jobid=" + (*info.slurm)->job_id);
  plan.exec_command.insert(plan.exec_command.end(), options.launcher_args.begin(),
                           options.launcher_args.end());
  for (size_t i = 0; i < plan.nodes.size(); ++i) plan.nodes[i].index = i;
  plan.ranks = NumberRanksOf(plan.nodes);
  plan.max_nodes = static_cast<int>(plan.ranks.blocks.size());
  if (!options.has_rank_range()) plan.min_nodes = options.min_nodes.value_or(plan.max_nodes);
  if (!options.shown_ranks.all && !options.shown_ranks.ranks.empty() &&
      options.shown_ranks.ranks.back() >= plan.world_size()) {
    return Usage("--show " + std::to_string(options.shown_ranks.ranks.back()) +
                 ": no such rank, this job has " +
                 (plan.world_size() == 1 ? "rank 0 only"
                                         : "ranks 0 to " + std::to_string(plan.world_size() - 1)));
  }
  return plan;
}

RankNumbering NumberRanksOf(const std::vector<Host>& nodes) {
  std::vector<NodeSlots> with_ranks;
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (nodes[i].spare) continue;
    with_ranks.push_back({static_cast<uint32_t>(i), static_cast<uint32_t>(nodes[i].slots)});
  }
  return NumberRanks(std::move(with_ranks));
}

int CertainRanks(const LaunchPlan& plan) {
  return plan.min_nodes == plan.max_nodes ? plan.world_size() : 0;
}

std::string PlanLine(const LaunchPlan& plan, std::string_view device) {
  const bool equal = std::all_of(plan.nodes.begin(), plan.nodes.end(), [&](const Host& node) {
    return node.slots == plan.nodes.front().slots;
  });
  std::vector<std::string> names;
  std::vector<std::string> spares;
  for (const Host& node : plan.nodes) {
    (node.spare ? spares : names)
        .push_back(equal ? node.name : node.name + "(" + std::to_string(node.slots) + ")");
  }
  const bool elastic = plan.min_nodes < plan.max_nodes;
  std::string line = (elastic ? std::to_string(plan.min_nodes) + " to " : "") +
                     Count(static_cast<size_t>(plan.max_nodes), "node");
  const auto slots = static_cast<size_t>(plan.nodes.front().slots);
  line += equal ? " x " + Count(slots, "slot") : " with unequal slots";
  line += std::string(" = ") + (elastic ? "up to " : "") +
          Count(static_cast<size_t>(plan.world_size()), "rank");
  const LauncherRow& launcher = RowOf(plan.launcher);
  const std::string way =
      launcher.way == Way::kEachNode
          ? SanitizeForTerminal(
                std::filesystem::path(plan.exec_command.front()).filename().string())
          : std::string(launcher.shown_name.empty() ? launcher.name : launcher.shown_name);
  line += " (" + way + ", " + std::string(device) + "): " + NameList(names, " ");
  if (!spares.empty()) {
    line += (spares.size() == 1 ? ", spare: " : ", spares: ") + NameList(spares, " ");
  }
  if (!plan.slots_note.empty()) line += " (" + plan.slots_note + ")";
  const auto here = std::ranges::find(plan.nodes, true, &Host::is_here);
  if (here != plan.nodes.end())
    line += " (" + here->name + " is this machine and is started without SSH)";
  return line;
}

Result<pb::MpiService> DecideMpi(MpiChoice requested, const std::string& no_pmix, int ranks) {
  pb::MpiService service;
  service.set_is_required(requested == MpiChoice::kPmix || requested == MpiChoice::kPmi);
  if (requested == MpiChoice::kNone || (requested == MpiChoice::kAuto && ranks == 1))
    return service;
  const bool with_pmix = requested != MpiChoice::kPmi && no_pmix.empty();
  if (requested == MpiChoice::kPmix && !with_pmix)
    return Error{ExitCode::kUnavailable, "--mpi pmix: " + no_pmix};
  service.set_server(with_pmix ? pb::MpiService::PMIX : pb::MpiService::PMI);
  if (requested == MpiChoice::kAuto && !with_pmix) {
    service.set_no_pmix(
        "a rank uses an MPI library that joins ranks by PMIx, as Open MPI does, but " + no_pmix +
        "; or --mpi none makes each rank a world of its own");
  }
  return service;
}

}  // namespace dslaunch
