// Reads the part of accelerate's configuration (--accelerate_config) that the front end needs. On
// the nodes accelerate's own code turns the configuration into variables
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

// Largest size of a configuration. The size is limited because one environment variable carries the
// text.
inline constexpr size_t kMaxAccelerateConfigBytes = 64u << 10;

struct AccelerateConfig {
  std::string path;
  std::string text;
  // Number of ranks on all machines; nullopt if the file does not set it.
  std::optional<int> num_processes;
  std::optional<int> num_machines;
  bool chooses_gpus = false;  // whether the file has gpu_ids
};

// Parses a configuration. Returns kBadInput ("path:line:column: what") if `text` is not a YAML or
// JSON map with a distributed_type. Also returns kBadInput for SageMaker and TPUs, which dslaunch
// does not start. Has no side effects.
Result<AccelerateConfig> ParseAccelerateConfig(std::string text, const std::string& path);

// Returns the path of the file that `accelerate config` writes: below HF_HOME, else XDG_CACHE_HOME,
// else the home folder. `environment` consists of NAME=VALUE strings. Returns an empty string if
// the file does not exist.
std::string DefaultAccelerateConfig(const std::vector<std::string>& environment);

// Reads the file of options.accelerate_config; nullopt if the option is not given. Errors are
// kUsage for options that contradict the file, or kBadInput for an invalid file.
Result<std::optional<AccelerateConfig>> ReadAccelerateConfig(
    const LaunchOptions& options, const std::vector<std::string>& environment,
    const std::string& cwd);

// Sets the number of ranks of this machine to the file's num_processes if no option sets the
// number, and adds a notice. Performs no I/O.
void TakeNumProcesses(const AccelerateConfig& config, const PlanInfo& info, LaunchOptions& options);

// Returns a notice if the file's numbers differ from a job of `ranks` on `nodes`, else an empty
// string. A number of 0 stands for a number that is not certain yet. Has no side effects.
std::string CountsNotice(const AccelerateConfig& config, int ranks, int nodes);

// Returns the first of the modules accelerate, transformers and trl that the Python source imports;
// empty if it imports none of them. Has no side effects.
std::string HuggingFaceImport(std::string_view source);

// Returns a notice if the job ignores accelerate's default configuration although the user may
// expect otherwise; else an empty string. This is so if the configuration exists, no option uses
// it, and options.program is a Python script in `cwd` that imports a module that obeys it under
// `accelerate launch`.
std::string IgnoredDefaultNotice(const LaunchOptions& options,
                                 const std::vector<std::string>& environment,
                                 const std::string& cwd);

// Reads the configuration with ReadAccelerateConfig for a job that is about to start. Applies the
// configuration's number of ranks as TakeNumProcesses() does, and adds its notice and
// IgnoredDefaultNotice() to options.notices. Returns nullopt if no option names a configuration.
Result<std::optional<AccelerateConfig>> TakeAccelerateConfig(
    const std::vector<std::string>& environment, const std::string& cwd, LaunchOptions& options);

}  // namespace dslaunch
