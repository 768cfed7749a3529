// The program of a job and its environment, and the placement and binding of its ranks. Pure.
//
// A rank's environment, each layer overriding those after it:
//   the rank's place    proto/contract/worker_env.h; a user's choice overrides some of it
//   --env NAME=VALUE    the last one of a name; NAME alone: this process's variable
//   the hostfile        `env` of the node, for this node's ranks only
//   environment file    DeepSpeed's .deepspeed_env (env_file.h) in the working directory, then
//                       in the home folder
//   carried             over SSH: the variables of this process that Carry() chooses, and
//                       PYTHONPATH, which begins with the working directory. A node that is this
//                       machine has all of them anyway.
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

// The state of this process.
struct ProgramInfo {
  std::vector<std::string> environment;  // NAME=VALUE
  std::string cwd;                       // absolute
  std::vector<EnvFile> env_files;        // later ones override
  std::optional<AccelerateConfig> accelerate;
  FrontPython python = {};
  // PythonNeedOf options.program and `python`; for a program that is started directly.
  pb::PythonEnvironment::Need python_need = pb::PythonEnvironment::NO;
};

// The embedded trainer, for the modes that run it.
struct TrainerProgram {
  std::string path;
  std::string recipe_json;
  int64_t memory_checkpoint = 0;  // the recipe's run.memory_checkpoint
};

struct JobProgram {
  pb::Program program;
  std::vector<std::string> notices;  // notices for the user
};

// Returns the embedded trainer if `trainer` is not null, else options.program. Errors are kUsage
// or, with file:line, kBadInput.
Result<JobProgram> MakeJobProgram(const LaunchOptions& options, const LaunchPlan& plan,
                                  const ProgramInfo& info, const TrainerProgram* trainer);

// Returns the job's program with the variables that the hostfile has for `node`.
pb::Program ProgramOn(const Host& node, pb::Program program);

// Returns the options of the ranks. Errors are kUsage.
Result<pb::RankOptions> MakeRankOptions(const LaunchOptions& options);

}  // namespace dslaunch
