#include "cli/job_setup.h"

#include <utility>
#include <vector>

#include "base/os/subprocess.h"
#include "cli/commands/version.h"
#include "cli/metrics/metrics_server.h"
#include "cli/plan/job_spec.h"
#include "cli/plan/plan_info.h"
#include "cli/plan/python_environment.h"
#include "cli/plan/safe_variables.h"
#include "cli/slurm_job.h"
#include "proto/contract/cuda_plugin.h"

namespace dslaunch {
namespace {

// Returns the program of the trainer. A job with a command on each node has as many ranks as the
// nodes that join start, so the number of ranks is unknown then.
Result<TrainerProgram> MakeTrainer(const LaunchOptions& options, const LaunchPlan& plan,
                                   const std::string& cwd, Terminal& terminal) {
  const int ranks = options.per_node ? 0 : CertainRanks(plan);
  DSL_TRY(CheckTrainer(BinaryFolder().string()));
  DSL_TRY_ASSIGN(const LoadedRecipe recipe, FindRecipe(options, cwd));
  DSL_TRY(CheckContent(recipe, ranks, ranks > 0 ? RanksOfNodes(plan) : std::vector<int>()));
  for (const std::string& notice : recipe.notices) {
    if (options.log_level >= LogLevel::kInfo) terminal.Err("dslaunch: " + notice);
  }
  return TrainerProgram{(BinaryFolder() / "dslaunch-train").string(), recipe.json,
                        MemoryCheckpointOf(recipe)};
}

// Asks Slurm for facts that the allocation's variables lack. If Slurm does not answer, the plan
// reports this.
void AskForGres(PlanInfo& info) {
  if (!info.slurm.ok() || !*info.slurm) return;
  SlurmAllocation& allocation = **info.slurm;
  const Result<std::string> job = DescribeSlurmJob(allocation.job_id);
  if (job.ok())
    ReadGres(*job, allocation);
  else
    allocation.gpus_unknown = job.error().message;
}

}  // namespace

std::vector<int> RanksOfNodes(const LaunchPlan& plan) {
  std::vector<int> ranks;
  for (const Host& node : plan.nodes) {
    if (!node.spare) ranks.push_back(node.slots);
  }
  return ranks;
}

std::filesystem::path BinaryFolder() {
  std::error_code ignored;
  return std::filesystem::read_symlink("/proc/self/exe", ignored).parent_path();
}

std::vector<std::string> RecipeFolders() {
  return {(BinaryFolder() / "../share/dslaunch/recipes").lexically_normal()};
}

Result<LoadedRecipe> FindRecipe(const LaunchOptions& options, const std::string& cwd) {
  RecipeRequest request;
  request.options = options.train;
  if (options.device != DeviceChoice::kAuto) {
    const bool cuda = options.device == DeviceChoice::kCuda;
    request.options.sets.insert(request.options.sets.begin(),
                                std::string("run.device=") + (cuda ? "cuda" : "cpu"));
  }
  request.cwd = cwd;
  request.recipe_dirs = RecipeFolders();
  return LoadRecipe(request);
}

Result<LaunchPlan> MakePlan(const LaunchOptions& options) {
  PlanInfo info =
      ReadPlanInfo(DeviceOf(options.device), options.mode == LaunchOptions::Mode::kTrain,
                   options.virtual_local_rank);
  if (UsesSlurm(options, info)) AskForGres(info);
  std::optional<std::vector<Host>> hosts;
  if (!options.hosts.empty()) {
    DSL_TRY_ASSIGN(hosts, ParseHostfile(options.hosts, "--hosts"));
  } else if (const std::optional<std::string> path = HostfileFor(options, info)) {
    DSL_TRY_ASSIGN(hosts, ReadHostfile(*path));
  }
  return MakeLaunchPlan(options, hosts, info);
}

Result<pb::Program> MakeProgram(LaunchOptions options, const LaunchPlan& plan,
                                const std::string& cwd, std::optional<AccelerateConfig> accelerate,
                                const std::string& called_as, Terminal& terminal) {
  if (options.runs_trainer) {
    DSL_TRY(CheckTrainer(BinaryFolder().string()));
    options.program[0] = (BinaryFolder() / "dslaunch-train").string();
  }
  ProgramInfo info;
  info.environment = CurrentEnvironment();
  info.cwd = cwd;
  info.accelerate = std::move(accelerate);
  DSL_TRY_ASSIGN(info.env_files, ReadEnvFiles(info.environment, cwd, RunsCodeOf(cwd, options)));
  info.python = FindFrontPython(info.environment, OwnPythonFolder(called_as));
  if (!options.program.empty() && !info.python.folder.empty())
    info.python_need = PythonNeedOf(options.program, info.python.folder);
  std::optional<TrainerProgram> trainer;
  if (options.mode == LaunchOptions::Mode::kTrain) {
    DSL_TRY_ASSIGN(trainer, MakeTrainer(options, plan, cwd, terminal));
  }
  DSL_TRY_ASSIGN(JobProgram job,
                 MakeJobProgram(options, plan, info, trainer ? &*trainer : nullptr));
  if (options.log_level != LogLevel::kError) {
    for (const std::string& notice : job.notices) terminal.Err("dslaunch: " + notice);
  }
  return std::move(job.program);
}

Result<DeviceChoice> DeviceFor(bool trains, DeviceChoice asked) {
  const bool is_trainers =
      asked == DeviceChoice::kAuto || asked == DeviceChoice::kCpu || asked == DeviceChoice::kCuda;
  if (trains && !is_trainers) {
    return Error{ExitCode::kUsage,
                 "train --device " + std::string(DeviceOption(DeviceOf(asked))) +
                     ": the embedded trainer computes on NVIDIA GPUs and on CPUs; give --device "
                     "cuda or cpu, or start a program of your own"};
  }
  if (!trains || !FindCudaPlugin(BinaryFolder()).empty()) return asked;
  if (asked == DeviceChoice::kCuda) {
    return Error{
        ExitCode::kUsage,
        "train --device cuda: this dslaunch was built without CUDA (it has no " +
            std::string(kCudaPluginFile) + "); build it against a " +
            "LibTorch with CUDA (dslaunch help training), or leave --device out to train on CPUs"};
  }
  return DeviceChoice::kCpu;
}

Result<MetricsPlaces> MetricsFor(const LaunchOptions& options) {
  if ((options.metrics_port != 0) != !options.metrics_token_file.empty()) {
    return Error{ExitCode::kUsage,
                 "--metrics_port and --metrics_token_file belong together: every user of this "
                 "machine can reach the port; --metrics_socket needs no token"};
  }
  MetricsPlaces metrics = {.file = options.metrics_file,
                           .socket = options.metrics_socket,
                           .port = options.metrics_port,
                           .token = {}};
  if (options.metrics_port != 0) {
    DSL_TRY_ASSIGN(metrics.token, ReadMetricsToken(options.metrics_token_file));
  }
  return metrics;
}

}  // namespace dslaunch
