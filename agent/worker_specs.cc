#include "agent/worker_specs.h"

#include <algorithm>
#include <utility>

#include "proto/contract/worker_env.h"
#include "rendezvous/addresses.h"

namespace dslaunch {
namespace {

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

// What CUDA programs may see. Like DeepSpeed, every rank of a node sees all its GPUs and picks its
// LOCAL_RANK's.
std::optional<std::string> VisibleDevices(const WorkerPlan& plan, const Environment& environment) {
  if (!plan.use_cuda) {
    if (plan.device == pb::DEVICE_CPU) return "";
    return std::nullopt;
  }
  if (FindVariable(environment, "CUDA_VISIBLE_DEVICES") != nullptr) return std::nullopt;
  std::string devices;
  for (uint32_t i = 0; i < plan.slots; ++i) {
    devices += (i == 0 ? "" : ",") + std::to_string(plan.first_device + i);
  }
  return devices;
}

}  // namespace

Result<pb::SpawnWorkers> MakeWorkerSpecs(const WorkerPlan& plan, const ResolvedProgram& program,
                                         const Environment& environment, const JobFolder& folder) {
  pb::SpawnWorkers spawn;
  spawn.set_cwd(program.cwd);

  WorkerEnv worker;
  worker.world_size = static_cast<int>(plan.assignment.world_size());
  worker.local_world_size = static_cast<int>(plan.slots);
  worker.node_rank = static_cast<int>(plan.assignment.node_rank());
  worker.num_nodes = static_cast<int>(plan.assignment.num_nodes());
  worker.master_addr = plan.assignment.master_addr();
  worker.master_port = static_cast<int>(plan.assignment.master_port());
  worker.job_id = plan.job_id;
  worker.epoch = plan.epoch;
  worker.restart_count = static_cast<int>(plan.assignment.restart_count());
  worker.max_restarts = plan.max_restarts;
  worker.omp_num_threads = std::max(1, plan.cores / static_cast<int>(plan.slots));
  worker.cuda_visible_devices = VisibleDevices(plan, environment);
  worker.socket_ifname = InterfaceTowards(
      plan.rendezvous_address.empty() ? worker.master_addr : plan.rendezvous_address);

  for (uint32_t local_rank = 0; local_rank < plan.slots; ++local_rank) {
    const uint32_t rank = plan.assignment.first_rank() + local_rank;
    DSL_TRY_ASSIGN(const std::string rank_folder, folder.MakeRankFolder(plan.epoch, rank));
    worker.rank = static_cast<int>(rank);
    worker.local_rank = static_cast<int>(local_rank);
    worker.error_file = rank_folder + "/error.json";

    Environment complete = environment;
    for (const auto& [name, value] : worker.Defaults())
      Set(complete, name, value, /*keep_existing=*/true);
    for (const auto& [name, value] : worker.Required())
      Set(complete, name, value, /*keep_existing=*/false);

    pb::WorkerSpec& spec = *spawn.add_workers();
    spec.set_rank(rank);
    spec.set_local_rank(local_rank);
    for (const std::string& argument : program.argv) spec.add_argv(argument);
    for (std::string& entry : complete) spec.add_env(std::move(entry));
    spec.set_stdout_path(rank_folder + "/stdout.log");
    spec.set_stderr_path(rank_folder + "/stderr.log");
  }
  return spawn;
}

}  // namespace dslaunch
