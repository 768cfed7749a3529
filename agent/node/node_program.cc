#include "agent/node/node_program.h"

#include <net/if.h>

#include <algorithm>
#include <utility>

#include "agent/accelerators/node_accelerators.h"
#include "agent/accelerators/visible_devices.h"
#include "agent/host/accelerate_program.h"
#include "agent/host/python_environment.h"
#include "agent/host/shell_environment.h"
#include "agent/node/copy_receiver.h"
#include "base/os/usable_cores.h"
#include "net/addresses.h"

namespace dslaunch {
namespace {

constexpr milliseconds kLookUpTimeout(3'000);

// Returns the interface that leads to the host of --master_addr; nullopt if its name has no
// address, or if there is no route to it. On the node that the name means, the route is only the
// loopback interface, so if there are other nodes (`is_remote`), returns an empty text.
std::optional<std::string> InterfaceOfMaster(const std::string& master_addr, bool is_remote) {
  bool is_own_name = false;
  for (const std::string& address : FindAddresses(master_addr, kLookUpTimeout)) {
    std::optional<std::string> interface = InterfaceTowards(address);
    if (!interface) continue;
    is_own_name = is_remote && IsLoopback(address);
    if (!is_own_name) return interface;
  }
  return is_own_name ? std::optional<std::string>("") : std::nullopt;
}

}  // namespace

Result<ProgramContext> ContextOf(const pb::Program& program, const std::string& node_name) {
  ProgramContext context;
  context.program = program;
  context.environment = NodeEnvironment();
  if (!program.venv_script().empty()) {
    DSL_TRY(CheckWorkingDirectory(program.cwd(), node_name));
    DSL_TRY_ASSIGN(SourcedShell shell, SourceScript(program.venv_script(), program.cwd(),
                                                    context.environment, node_name));
    context.environment = std::move(shell.environment);
    context.shell_limits = std::move(shell.limits);
    context.program.set_cwd(shell.cwd);
  }
  context.environment = MergeEnvironment(std::move(context.environment), program.env());
  context.environment = MergeEnvironment(std::move(context.environment), program.chosen_env());
  DSL_TRY_ASSIGN(PythonPlace place,
                 EnterPythonEnvironment(program, std::move(context.environment), node_name));
  context.notice = std::move(place.notice);
  context.environment = WithVariable(std::move(place.environment), "PWD", context.program.cwd());
  return context;
}

Result<NodeProgram> NodeProgram::Resolve(const pb::PrepareRequest& prepare,
                                         const NodeTable& nodes) {
  const pb::JobSpec& job = prepare.job();
  const pb::RankOptions& options = job.ranks().options();
  NodeProgram resolved;
  const pb::Node own_node = nodes.At(prepare.node_index());
  const std::string& node_name = own_node.name();
  const Result<pb::Program> with_copies = WithCopies(job.ranks().program(), job.copies());
  if (!with_copies.ok())
    return Error{with_copies.error().code, node_name + ": " + with_copies.error().message};
  DSL_TRY_ASSIGN(ProgramContext context, ContextOf(*with_copies, node_name));
  const pb::Program& program = context.program;
  resolved.environment_ = std::move(context.environment);
  resolved.shell_limits_ = std::move(context.shell_limits);
  resolved.notice_ = std::move(context.notice);
  if (!job.network_interface().empty()) {
    resolved.network_interface_ = job.network_interface();
  } else if (!options.master_addr().empty()) {
    resolved.network_interface_ =
        InterfaceOfMaster(options.master_addr(), nodes.size() > 1 && !job.local());
  }
  DSL_TRY_ASSIGN(resolved.program_, ResolveProgram(program, resolved.environment_, node_name));
  DSL_TRY_ASSIGN(resolved.program_, WithAccelerate(std::move(resolved.program_), program,
                                                   resolved.environment_, node_name));
  // The binding of CORES does not depend on the devices, so it is checked before any rank runs.
  if (options.bind() != pb::RankOptions::CORES) return resolved;
  AttemptPlace all_ranks;
  all_ranks.assignment.set_world_size(std::max(nodes.num_regular_slots(), own_node.slots()));
  const Result<std::vector<RankBinding>> bindings =
      resolved.BindRanks(prepare, own_node, all_ranks, {});
  if (!bindings.ok()) return bindings.error();
  return resolved;
}

Result<PlannedWorkers> NodeProgram::Plan(const pb::PrepareRequest& prepare,
                                         const pb::Node& own_node, const AttemptPlace& place,
                                         const JobFolder& folder) const {
  PlannedWorkers planned;
  NodeAccelerators accelerators;
  if (place.device != pb::DEVICE_CPU) {
    DSL_TRY_ASSIGN(accelerators, FindAccelerators(place.device, false, LookUpIn(environment_)));
  }
  WorkerPlan plan =
      PlanWorkers(prepare, own_node, place, environment_, UsableCores(), accelerators.numbered);
  plan.network_interface = network_interface_;
  DSL_TRY_ASSIGN(plan.bindings, BindRanks(prepare, own_node, place, plan.devices));
  const bool binds_memory = std::ranges::any_of(
      plan.bindings, [](const RankBinding& binding) { return !binding.memory_nodes.empty(); });
  if (binds_memory && !MayBindMemory()) {
    planned.notices.push_back(plan.node_name +
                              ": ranks are bound to cores but not to memory, which the kernel does "
                              "not allow there (a container needs CAP_SYS_NICE for it)");
    for (RankBinding& binding : plan.bindings) binding.memory_nodes.clear();
  }
  DSL_TRY_ASSIGN(planned.specs,
                 MakeWorkerSpecs(prepare.job(), plan, program_, environment_, folder));
  *planned.specs.mutable_shell_limits() = shell_limits_;
  if (place.device == pb::DEVICE_CUDA) planned.devices = plan.devices;
  const uint32_t ranks_here = prepare.job().local() ? place.assignment.world_size() : plan.slots;
  planned.specs.set_share_cores(ranks_here > static_cast<uint32_t>(plan.cores));
  return planned;
}

Result<std::vector<RankBinding>> NodeProgram::BindRanks(
    const pb::PrepareRequest& prepare, const pb::Node& own_node, const AttemptPlace& place,
    const std::vector<std::string>& devices) const {
  const pb::RankOptions& options = prepare.job().ranks().options();
  BindingRequest request;
  request.bind = options.bind();
  if (request.bind == pb::RankOptions::NONE) return std::vector<RankBinding>();
  const auto refused = [&](const std::string& why) {
    return Error{ExitCode::kUsage, own_node.name() + ": " + why};
  };
  if (request.bind == pb::RankOptions::CORES && FindVariable(environment_, "KMP_AFFINITY")) {
    return refused(
        "--bind_cores_to_rank: KMP_AFFINITY is set there, which binds threads to other "
        "cores; unset it");
  }
  const uint32_t slots = own_node.slots();
  const bool beside_gpus = request.bind != pb::RankOptions::CORES && place.device != pb::DEVICE_CPU;
  if (beside_gpus) {
    const AcceleratorRow& row = RowOf(place.device);
    const LookUpVariable getenv = LookUpIn(environment_);
    DSL_TRY_ASSIGN(const std::vector<Accelerator> shown,
                   ShownToLastLevel(row, row.read("", getenv), getenv));
    const Result<std::vector<int>> nodes = NumaNodesOf(row, devices, shown);
    if (!nodes.ok()) return refused(nodes.error().message);
    if (nodes->size() < slots) {
      return refused("--numa_binding: " + std::to_string(slots) + " ranks have only " +
                     std::to_string(nodes->size()) + " " + std::string(row.noun) + "s in " +
                     std::string(row.levels.back().front()));
    }
    request.gpu_nodes = *nodes;
  }
  // Several nodes on one machine share its cores, so the cores are divided among the ranks of all
  // nodes.
  const bool all_are_here = prepare.job().local() && !beside_gpus;
  request.cores.assign(options.cores().begin(), options.cores().end());
  request.ranks = static_cast<int>(all_are_here ? place.assignment.world_size() : slots);
  Result<std::vector<RankBinding>> bindings =
      DecideBinding(ReadCpuTopology("", UsableCpus()), request);
  if (!bindings.ok()) return refused(bindings.error().message);
  if (all_are_here) {
    const auto first = bindings->begin() + place.assignment.first_rank();
    bindings = std::vector<RankBinding>(first, first + slots);
  }
  return bindings;
}

Result<void> CheckNetworkInterface(const pb::PrepareRequest& prepare) {
  const std::string& name = prepare.job().network_interface();
  if (name.empty() || (prepare.job().local() && if_nametoindex(name.c_str()) != 0)) return {};
  std::string others;
  for (const Interface& one : Interfaces()) {
    const bool serves = one.up && !one.addresses.empty();
    if (serves && one.name == name) return {};
    if (serves) others += (others.empty() ? "" : ", ") + one.name + " (" + one.addresses[0] + ")";
  }
  return Error{ExitCode::kUnavailable, "--network_interface " + name +
                                           ": no such interface is up and has an address; " +
                                           (others.empty() ? "none is" : "there is " + others)};
}

}  // namespace dslaunch
