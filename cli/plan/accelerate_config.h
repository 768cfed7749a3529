// The part of accelerate's configuration (--accelerate_config) that the front end reads. On the
// nodes accelerate's own code turns it into variables (agent/host/accelerate_program.h).
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "cli/plan/launch_plan.h"
#include "cli/request/launch_options.h"

namespace dslaunch {

inline constexpr size_t kMaxAccelerateConfigBytes = 64u << 10;  // because one variable carries it

struct AccelerateConfig {
  std::string path;
  std::string text;
  std::optional<int> num_processes;  // ranks of all machines; nullopt if not in the file
  std::optional<int> num_machines;
  bool chooses_gpus = false;  // gpu_ids
};

// Parses a configuration. kBadInput ("path:line:column: what") if `text` is not a YAML or JSON map
// with a distributed_type, or is for SageMaker or TPUs, which dslaunch does not start. Pure.
Result<AccelerateConfig> ParseAccelerateConfig(std::string text, const std::string& path);

// Returns the file that `accelerate config` writes: below HF_HOME, else XDG_CACHE_HOME, else the
// home folder. `environment` is NAME=VALUE. Empty if there is no such file.
std::string DefaultAccelerateConfig(const std::vector<std::string>& environment);

// Reads the file of options.accelerate_config; nullopt if the option is not given. Errors are
// kUsage, for options that contradict the file, or kBadInput.
Result<std::optional<AccelerateConfig>> ReadAccelerateConfig(
    const LaunchOptions& options, const std::vector<std::string>& environment,
    const std::string& cwd);

// Sets the number of ranks of this machine to the file's num_processes if no option sets it. Adds
// a notice. Pure.
void TakeNumProcesses(const AccelerateConfig& config, const PlanInfo& info, LaunchOptions& options);

// Returns a notice if the file's numbers differ from a job of `ranks` on `nodes` (0: not certain
// yet), else an empty string. Pure.
std::string CountsNotice(const AccelerateConfig& config, int ranks, int nodes);

// Returns the first of accelerate, transformers and trl that this Python source imports; empty if
// there is none. Pure.
std::string HuggingFaceImport(std::string_view source);

// Returns a notice if accelerate has a default configuration, options.program is a Python script in
// `cwd` that imports a module which would obey it under `accelerate launch`, and no option uses it.
std::string IgnoredDefaultNotice(const LaunchOptions& options,
                                 const std::vector<std::string>& environment,
                                 const std::string& cwd);

// Reads the configuration by ReadAccelerateConfig for a job that is to start. Adds to `options` its
// number of ranks and the notices above.
Result<std::optional<AccelerateConfig>> TakeAccelerateConfig(
    const std::vector<std::string>& environment, const std::string& cwd, LaunchOptions& options);

}  // namespace dslaunch
