// Builds the program of a job with its environment, and the placement and binding of its ranks. All
// functions are pure.
//
// A rank's environment consists of these layers; each layer overrides the layers after it:
//   the rank's place    proto/contract/worker_env.h; a user's choice overrides some of it
//   --env NAME=VALUE    the last value of a name counts; NAME alone copies this process's variable
//   the hostfile        `env` of the node, for ranks on that node only
//   environment file    DeepSpeed's .deepspeed_env (env_file.h) in the working directory, then
//                       in the home folder
//   carried             over SSH: the variables of this process that Carry() chooses, and
//                       PYTHONPATH, which begins with the working directory. A node that is this
//                       machine has all variables of this process anyway.
//   the node's own      including PATH, as with DeepSpeed, behind the `bin` of the active Python
//                       environment; with --venv_script as the script left it
// No shell reads a name, a value or an argument on the way to a rank.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "cli/plan/accelerate_config.h"
#include "cli/plan/env_file.h"
#include "cli/plan/launch_plan.h"
#include "cli/plan/python_environment.h"
#include "cli/request/launch_options.h"
#include "proto/job.pb.h"

namespace dslaunch {

// The state of this process that affects the program of the job.
struct ProgramInfo {
  std::vector<std::string> environment;  // environment of this process, as NAME=VALUE strings
  std::string cwd;                       // absolute path of the current folder
  std::vector<EnvFile> env_files;        // environment files; later files override earlier ones
  std::optional<AccelerateConfig> accelerate;
  FrontPython python = {};
  // Degree to which a program that is started directly needs the Python environment (PythonNeedOf).
  pb::PythonEnvironment::Need python_need = pb::PythonEnvironment::NO;
};

// The embedded trainer, for the modes that run it.
struct TrainerProgram {
  std::string path;
  std::string recipe_json;
  // Steps between copies in memory (run.memory_checkpoint); 0 for none.
  int64_t memory_checkpoint = 0;
};

struct JobProgram {
  pb::Program program;
  std::vector<std::string> notices;  // notices for the user about the program and its environment
};

// Returns the program of the job with its environment: the embedded trainer if `trainer` is not
// null, else options.program. Errors are kUsage, or kBadInput with file:line.
Result<JobProgram> MakeJobProgram(const LaunchOptions& options, const LaunchPlan& plan,
                                  const ProgramInfo& info, const TrainerProgram* trainer);

// Returns the job's program with the variables that the hostfile sets for `node`.
pb::Program ProgramOn(const Host& node, pb::Program program);

// Returns the placement and binding of the ranks. Errors are kUsage.
Result<pb::RankOptions> MakeRankOptions(const LaunchOptions& options);

}  // namespace dslaunch
