// Prepares a job or `dslaunch doctor` before connecting: plans the nodes, and finds the program and
// the files of this installation.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "cli/options/options.h"
#include "cli/output/terminal.h"
#include "cli/plan/accelerate_config.h"
#include "cli/plan/job_program.h"
#include "cli/plan/launch_plan.h"
#include "cli/plan/recipe.h"
#include "cli/request/metrics_places.h"

namespace dslaunch {

// Returns the folder of the running dslaunch, in a build tree or an installation. The trainer and
// its recipes are located relative to this folder.
std::filesystem::path BinaryFolder();

// Returns the folders that contain the built-in recipes.
std::vector<std::string> RecipeFolders();

// Returns the recipe of a `train` command, with its --device applied. Relative paths start at
// `cwd`.
Result<LoadedRecipe> FindRecipe(const LaunchOptions& options, const std::string& cwd);

// Plans the nodes of a job. Reads the hostfile and the environment, and asks Slurm about its
// allocation if the job runs in one.
Result<LaunchPlan> MakePlan(const LaunchOptions& options);

// Returns the number of ranks on each node except spares, in the order of the ranks. Precondition:
// the number of ranks is known before the start (CertainRanks() is not 0).
std::vector<int> RanksOfNodes(const LaunchPlan& plan);

// Resolves the command line to the program of the ranks, and prints notices. `called_as` is argv[0]
// of this process.
Result<pb::Program> MakeProgram(LaunchOptions options, const LaunchPlan& plan,
                                const std::string& cwd, std::optional<AccelerateConfig> accelerate,
                                const std::string& called_as, Terminal& terminal);

// Returns the kind of device for the ranks. Without `trains` (a program of the user), returns
// `asked`. With `trains` (the embedded trainer), returns kCpu instead of kAuto if the trainer is
// built without CUDA, so that it does not claim to train on GPUs. Fails with kUsage if the trainer
// does not support `asked`.
Result<DeviceChoice> DeviceFor(bool trains, DeviceChoice asked);

// Returns the destinations of the job's metrics. Reads the token's file. Returns kUsage if a port
// has no token, or a token has no port.
Result<MetricsPlaces> MetricsFor(const LaunchOptions& options);

}  // namespace dslaunch
