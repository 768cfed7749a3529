// What every rank of a job runs: the program, its environment, and how its ranks are placed and
// bound. Pure.
//
// A rank's environment, each layer overriding those after it:
//   the rank's place    proto/contract/worker_env.h; some of it gives way to a user's choice
//   --env NAME=VALUE    of two of one name the last; NAME alone: this process's variable
//   the hostfile        `env` of the node, for this node's ranks only
//   environment file    DeepSpeed's .deepspeed_env (env_file.h): that of the working directory,
//                       then that of the home folder
//   carried             over SSH: of this process's variables those that Carry() names, and
//                       PYTHONPATH begins with the working directory. A node that is this machine
//                       has all of them anyway.
//   the node's own      PATH too, as with DeepSpeed, behind the `bin` of the active Python
//                       environment; after --venv_script, what that made of it
// No shell reads a name, a value or an argument on its way.
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

// What is true of this process.
struct ProgramInfo {
  std::vector<std::string> environment;  // NAME=VALUE
  std::string cwd;                       // absolute
  std::vector<EnvFile> env_files;        // later ones override
  std::optional<AccelerateConfig> accelerate;
  FrontPython python = {};
  // Of options.program with `python`; for a program that is started as it is.
  pb::PythonEnvironment::Need python_need = pb::PythonEnvironment::NO;
};

// The embedded trainer, for the modes that run it.
struct TrainerProgram {
  std::string path;
  std::string recipe_json;
};

struct JobProgram {
  pb::Program program;
  std::vector<std::string> notices;  // for the user
};

// The embedded trainer where `trainer` is given, else options.program. Errors are kUsage or, with
// file:line, kBadInput.
Result<JobProgram> MakeJobProgram(const LaunchOptions& options, const LaunchPlan& plan,
                                  const ProgramInfo& info, const TrainerProgram* trainer);

// The program of `node`: the job's, with the node's variables of the hostfile.
pb::Program ProgramOn(const Host& node, pb::Program program);

// Errors are kUsage.
Result<pb::RankOptions> MakeRankOptions(const LaunchOptions& options);

}  // namespace dslaunch
