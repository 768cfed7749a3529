#include "agent/node/worker_specs.h"

#include <algorithm>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "agent/accelerators/visible_devices.h"
#include "agent/flight/flight_requests.h"
#include "net/addresses.h"
#include "proto/contract/rank_files.h"
#include "proto/contract/worker_env.h"
#include "proto/wire/framed_socket.h"

namespace dslaunch {
namespace {

// Variables that only some ranks get. If the node's environment has them, a rank of another job
// started this job, and that rank's descriptors are not open in this process, so they are removed.
constexpr std::string_view kOwnDescriptors[] = {kStoreFdVariable, kMemoryFdsVariable,
                                                kMemoryCheckpointVariable};

void Set(Environment& environment, const std::string& name, const std::string& value,
         bool keep_existing) {
  const std::string prefix = name + "=";
  for (std::string& entry : environment) {
    if (entry.compare(0, prefix.size(), prefix) != 0) continue;
    if (!keep_existing) entry = prefix + value;
    return;
  }
  environment.push_back(prefix + value);
}

// Returns the variables for the devices that a slot's program may see. As with DeepSpeed, every
// rank of a node sees all of the node's devices and uses the device of its LOCAL_RANK, unless the
// rank may see only that device. If devices were chosen, the variables are also set for programs on
// CPUs.
Result<std::vector<std::pair<std::string, std::string>>> VisibleDevices(
    const pb::JobSpec& job, const WorkerPlan& plan, const Environment& environment, uint32_t slot) {
  using Variables = std::vector<std::pair<std::string, std::string>>;
  const AcceleratorRow& row = RowOf(plan.place.device);
  const bool is_on_cpu = plan.place.device == pb::DEVICE_CPU;
  Variables variables;
  if (is_on_cpu && job.device() == pb::DEVICE_CPU) {
    for (const AcceleratorRow& any : AcceleratorTable()) {
      if (any.hides_all) variables.emplace_back(any.levels.back().front(), *any.hides_all);
    }
    return variables;
  }
  std::string devices;
  if (job.ranks().options().virtual_local_rank()) {
    if (slot >= plan.devices.size()) {
      return Error{ExitCode::kUsage,
                   plan.node_name + ": --virtual_local_rank: there is no device for local rank " +
                       std::to_string(slot) + "; " + std::string(row.levels.back().front()) +
                       " there names " + std::to_string(plan.devices.size())};
    }
    devices = plan.devices[slot];
  } else {
    const bool has_own = OwnVisible(row, LookUpIn(environment)) != nullptr;
    if (!plan.devices_given && (is_on_cpu || has_own)) return variables;
    for (const std::string& device : plan.devices) devices += (devices.empty() ? "" : ",") + device;
  }
  for (const std::string_view name : row.levels.back()) variables.emplace_back(name, devices);
  for (const std::string_view name : row.copies) {
    if (FindVariable(environment, std::string(name)) != nullptr)
      variables.emplace_back(name, devices);
  }
  return variables;
}

std::string LocalRankArgument(const ResolvedProgram& program, int local_rank) {
  return program.local_rank_option + "=" + std::to_string(local_rank);
}

// Sets for each worker the variables of its rank, and once for all workers the rest of the node's
// environment.
void SetEnvironments(const Environment& environment, const std::vector<WorkerEnv>& workers,
                     pb::SpawnWorkers& spawn) {
  std::set<std::string> names;
  for (const WorkerEnv& worker : workers) {
    for (const auto& [name, value] : worker.Defaults()) names.insert(name);
    for (const auto& [name, value] : worker.Required()) names.insert(name);
  }
  Environment of_places;
  for (const std::string& entry : environment) {
    const std::string name = entry.substr(0, entry.find('='));
    if (names.contains(name)) {
      of_places.push_back(entry);
    } else if (std::ranges::find(kOwnDescriptors, name) == std::end(kOwnDescriptors)) {
      spawn.add_env(entry);
    }
  }
  for (size_t i = 0; i < workers.size(); ++i) {
    for (std::string& entry : WithPlace(of_places, workers[i]))
      spawn.mutable_workers(static_cast<int>(i))->add_env(std::move(entry));
  }
}

}  // namespace

std::vector<std::string> CommandOf(const ResolvedProgram& program, int local_rank) {
  std::vector<std::string> argv = program.argv;
  if (!program.local_rank_option.empty()) {
    argv.insert(argv.begin() + static_cast<std::ptrdiff_t>(program.local_rank_at),
                LocalRankArgument(program, local_rank));
  }
  return argv;
}

WorkerPlan PlanWorkers(const pb::PrepareRequest& prepare, const pb::Node& own_node,
                       const AttemptPlace& place, const Environment& environment, int cores,
                       const std::vector<Accelerator>& numbered) {
  WorkerPlan plan{place, own_node.slots(), own_node.name(), cores};
  // Several nodes on one machine share its devices, so the devices of each node begin with the
  // device of the node's first rank.
  const uint32_t first_device = prepare.job().local() ? place.assignment.first_rank() : 0;
  plan.devices_given =
      !prepare.devices().empty() || (place.device != pb::DEVICE_CPU && first_device > 0);
  plan.devices =
      NamesOfSlots(RowOf(place.device), {prepare.devices().begin(), prepare.devices().end()},
                   LookUpIn(environment), numbered, first_device, plan.slots);
  return plan;
}

std::vector<std::string> IfnameVariables(pb::Device device) {
  std::vector<std::string> names = WorkerEnv().ifname_variables;
  for (const std::string_view name : RowOf(device).interface_variables) {
    if (std::ranges::find(names, name) == names.end()) names.emplace_back(name);
  }
  return names;
}

Result<WorkerEnv> MakeWorkerEnv(const pb::JobSpec& job, const WorkerPlan& plan,
                                const Environment& environment, uint32_t local_rank) {
  const pb::Assignment& assignment = plan.place.assignment;
  const pb::RankOptions& options = job.ranks().options();
  WorkerEnv worker;
  worker.world_size = static_cast<int>(assignment.world_size());
  worker.local_world_size = static_cast<int>(plan.slots);
  worker.node_rank = static_cast<int>(assignment.node_rank());
  worker.num_nodes = static_cast<int>(assignment.num_nodes());
  worker.master_addr =
      options.master_addr().empty() ? assignment.master_addr() : options.master_addr();
  worker.master_port = static_cast<int>(assignment.master_port());
  worker.job_id = job.job_id();
  worker.attempt = plan.place.attempt;
  worker.restart_count = static_cast<int>(assignment.restart_count());
  worker.max_restarts = static_cast<int>(job.policy().max_restarts());
  worker.omp_num_threads = std::max(1, plan.cores / static_cast<int>(plan.slots));
  if (!options.role().empty()) worker.role = options.role();
  if (assignment.role_world_size() > 0) {
    worker.role_rank = static_cast<int>(assignment.first_role_rank() + local_rank);
    worker.role_world_size = static_cast<int>(assignment.role_world_size());
  }
  worker.run_id = options.run_id();
  worker.memory_checkpoint = static_cast<int>(
      std::min<uint32_t>(job.ranks().program().memory_checkpoint(), kMaxMemoryCheckpoint));
  worker.mpi_env = options.mpi_env();
  worker.rank = static_cast<int>(assignment.first_rank() + local_rank);
  worker.local_rank = options.virtual_local_rank() ? 0 : static_cast<int>(local_rank);
  DSL_TRY_ASSIGN(worker.visible_devices, VisibleDevices(job, plan, environment, local_rank));
  worker.ifname_variables = IfnameVariables(plan.place.device);
  const int threads = plan.bindings.empty() ? 0 : plan.bindings.at(local_rank).threads;
  worker.omp_required = threads > 0;
  if (worker.omp_required) worker.omp_num_threads = threads;
  return worker;
}

Environment WithPlace(Environment environment, const WorkerEnv& worker) {
  for (const auto& [name, value] : worker.Defaults())
    Set(environment, name, value, /*keep_existing=*/true);
  for (const auto& [name, value] : worker.Required())
    Set(environment, name, value, /*keep_existing=*/false);
  return environment;
}

Result<pb::SpawnWorkers> MakeWorkerSpecs(const pb::JobSpec& job, const WorkerPlan& plan,
                                         const ResolvedProgram& program,
                                         const Environment& environment, const JobFolder& folder) {
  const AttemptPlace& place = plan.place;
  pb::SpawnWorkers spawn;
  spawn.set_cwd(program.cwd);
  for (const std::string& argument : program.argv) spawn.add_argv(argument);
  spawn.set_memory_files(job.ranks().program().memory_checkpoint() > 0);
  spawn.set_own_argv_at(static_cast<uint32_t>(program.local_rank_at));
  std::vector<WorkerEnv> workers;  // environment variables of each worker, indexed by slot
  std::optional<bool> takes_pipes;
  const bool by_routes = plan.network_interface && plan.network_interface->empty();
  const std::optional<std::string> interface =
      !by_routes
          ? plan.network_interface
          : InterfaceTowards(place.rendezvous_address.empty() ? place.assignment.master_addr()
                                                              : place.rendezvous_address);

  for (uint32_t local_rank = 0; local_rank < plan.slots; ++local_rank) {
    const uint32_t rank = place.assignment.first_rank() + local_rank;
    DSL_TRY_ASSIGN(const std::string rank_folder, folder.MakeRankFolder(place.attempt, rank));
    DSL_TRY_ASSIGN(WorkerEnv worker, MakeWorkerEnv(job, plan, environment, local_rank));
    worker.socket_ifname = interface;
    worker.rank_socket = place.rank_socket;
    worker.error_file = rank_folder + "/error.json";
    worker.rank_dir = rank_folder;
    if (!takes_pipes) takes_pipes = TakesPipes(rank_folder);
    if (*takes_pipes) worker.flight_prefix = rank_folder + "/" + kFlightPrefix;
    const RankBinding binding =
        plan.bindings.empty() ? RankBinding() : plan.bindings.at(local_rank);

    pb::WorkerSpec& spec = *spawn.add_workers();
    spec.set_rank(rank);
    spec.set_local_rank(local_rank);
    if (!program.local_rank_option.empty())
      spec.add_argv(LocalRankArgument(program, worker.local_rank));
    workers.push_back(std::move(worker));
    spec.set_stdout_path(rank_folder + "/stdout.log");
    spec.set_stderr_path(rank_folder + "/stderr.log");
    for (const int cpu : binding.cpus) spec.add_cpus(static_cast<uint32_t>(cpu));
    for (const int node : binding.memory_nodes) spec.add_memory_nodes(static_cast<uint32_t>(node));
    spec.set_memory_preferred(binding.memory_preferred);
  }
  SetEnvironments(environment, workers, spawn);
  if (const size_t bytes = spawn.ByteSizeLong(); bytes > kMaxFrameBytes / 2) {
    return Error{ExitCode::kUsage, plan.node_name + ": environment and arguments are " +
                                       std::to_string(bytes >> 20) +
                                       " MiB, and a program takes 6 at most; make them smaller"};
  }
  return spawn;
}

}  // namespace dslaunch
