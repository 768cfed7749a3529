// accelerate's configuration for a job (--accelerate_config): what the front end reads of it. The
// environment that it means is asked of accelerate's own code on the nodes
// (agent/host/accelerate_program.h).
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "cli/plan/launch_plan.h"
#include "cli/request/launch_options.h"

namespace dslaunch {

inline constexpr size_t kMaxAccelerateConfigBytes = 64u << 10;  // it travels in one variable

struct AccelerateConfig {
  std::string path;
  std::string text;
  std::optional<int> num_processes;  // of all machines; nullopt: the file does not say
  std::optional<int> num_machines;
  bool chooses_gpus = false;  // gpu_ids
};

// kBadInput ("path:line:column: what") if `text` is not a YAML or JSON map with a distributed_type,
// or is for what dslaunch does not start: SageMaker, TPUs. Pure.
Result<AccelerateConfig> ParseAccelerateConfig(std::string text, const std::string& path);

// Where `accelerate config` writes: below HF_HOME, else XDG_CACHE_HOME, else the home folder.
// `environment` is NAME=VALUE. Empty if there is no such file.
std::string DefaultAccelerateConfig(const std::vector<std::string>& environment);

// The file of options.accelerate_config; nullopt if the option is not given. Errors are kUsage, for
// options that contradict the file, or kBadInput.
Result<std::optional<AccelerateConfig>> ReadAccelerateConfig(
    const LaunchOptions& options, const std::vector<std::string>& environment,
    const std::string& cwd);

// Where nothing else says how many ranks this machine gets, the file's num_processes does. Adds a
// notice. Pure.
void TakeNumProcesses(const AccelerateConfig& config, const PlanInfo& info, LaunchOptions& options);

// A notice if the file's numbers are not those of a job of `ranks` on `nodes` (0: not certain yet),
// else empty. Pure.
std::string CountsNotice(const AccelerateConfig& config, int ranks, int nodes);

// The first of accelerate, transformers and trl that a line of this Python source imports; empty if
// none. Pure.
std::string HuggingFaceImport(std::string_view source);

// A notice if there is a default configuration of accelerate's, options.program is a Python script
// in `cwd` that imports what would obey it under `accelerate launch`, and no option says so.
std::string IgnoredDefaultNotice(const LaunchOptions& options,
                                 const std::vector<std::string>& environment,
                                 const std::string& cwd);

// The configuration of a job that is to start, as ReadAccelerateConfig has it. Adds to `options`
// what it says of this machine's ranks, and the notices above.
Result<std::optional<AccelerateConfig>> TakeAccelerateConfig(
    const std::vector<std::string>& environment, const std::string& cwd, LaunchOptions& options);

}  // namespace dslaunch
