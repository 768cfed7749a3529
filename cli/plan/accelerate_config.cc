#include "cli/plan/accelerate_config.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/count.h"
#include "base/os/proc_text.h"
#include "base/text/sanitize.h"
#include "base/text/split_lines.h"
#include "cli/plan/env_file.h"
#include "cli/plan/plan_info.h"
#include "cli/plan/yaml_document.h"

namespace dslaunch {
namespace {

namespace fs = std::filesystem;

constexpr char kOption[] = "--accelerate_config";
constexpr char kDefault[] = "default";
constexpr int kMaxCount = 1'000'000;
constexpr std::string_view kModules[] = {"accelerate", "transformers", "trl"};
constexpr size_t kMaxSourceBytes = 1u << 20;

// Returns the value of `key`; null if the key is missing. A null value counts as a missing key, as
// in accelerate.
const nlohmann::json* Find(const nlohmann::json& config, const char* key) {
  const auto found = config.find(key);
  return found == config.end() || found->is_null() ? nullptr : &*found;
}

Result<std::optional<int>> ReadCount(const nlohmann::json& config, const char* key,
                                     const std::string& path) {
  const nlohmann::json* const value = Find(config, key);
  if (value == nullptr || *value == -1)
    return std::optional<int>();  // -1 means in accelerate that the key is not set
  if (!value->is_number_integer() || *value < 1 || *value > kMaxCount) {
    return Error{ExitCode::kBadInput, path + ": " + key + " must be a whole number from 1 to " +
                                          std::to_string(kMaxCount)};
  }
  return std::optional(value->get<int>());
}

std::string Text(const nlohmann::json& config, const char* key) {
  const nlohmann::json* const value = Find(config, key);
  return value != nullptr && value->is_string() ? value->get<std::string>() : "";
}

Error NotStarted(const std::string& path, const std::string& what) {
  return Error{ExitCode::kBadInput,
               path + ": " + what + ", which dslaunch does not start; use accelerate launch"};
}

std::string Expanded(const std::string& path, const std::string& home) {
  return path.starts_with("~/") ? home + path.substr(1) : path;
}

// Returns the path of the Python source that the command runs; empty if the command names no such
// source.
std::string SourceOf(const LaunchOptions& options, const std::string& cwd) {
  std::string name;
  if (options.form == ProgramForm::kModule) {
    name = options.program.front();
    std::ranges::replace(name, '.', '/');
    name += ".py";
  } else {
    const auto script = std::ranges::find_if(
        options.program, [](const std::string& word) { return word.ends_with(".py"); });
    if (script == options.program.end()) return "";
    name = *script;
  }
  return fs::path(cwd) / options.chdir / name;
}

// Returns the top-level name of the module at the beginning of `text` if kModules contains it, else
// an empty string.
std::string ModuleAt(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(" \t"), text.size()));
  const std::string_view name = text.substr(0, text.find_first_of(". \t,;#\r"));
  return std::ranges::find(kModules, name) == std::end(kModules) ? "" : std::string(name);
}

}  // namespace

Result<AccelerateConfig> ParseAccelerateConfig(std::string text, const std::string& path) {
  if (text.size() > kMaxAccelerateConfigBytes || text.find('\0') != std::string::npos) {
    return Error{ExitCode::kBadInput,
                 path + ": not a configuration of accelerate's (over 64 KiB, or not a text)"};
  }
  DSL_TRY_ASSIGN(const nlohmann::json config, ParseYaml(text, path));
  if (!config.is_object() || Find(config, "distributed_type") == nullptr) {
    return Error{ExitCode::kBadInput,
                 path +
                     ": not a configuration of accelerate's, which has a key distributed_type; "
                     "write one with: accelerate config"};
  }
  if (Text(config, "compute_environment") == "AMAZON_SAGEMAKER")
    return NotStarted(path, "compute_environment AMAZON_SAGEMAKER is a job of SageMaker's");
  const std::string type = Text(config, "distributed_type");
  if (type == "XLA" || type == "TPU")
    return NotStarted(path, "distributed_type " + type + " is for TPUs");
  AccelerateConfig read;
  DSL_TRY_ASSIGN(read.num_processes, ReadCount(config, "num_processes", path));
  DSL_TRY_ASSIGN(read.num_machines, ReadCount(config, "num_machines", path));
  const nlohmann::json* const gpu_ids = Find(config, "gpu_ids");
  read.chooses_gpus = gpu_ids != nullptr && *gpu_ids != "all";
  read.path = path;
  read.text = std::move(text);
  return read;
}

std::string DefaultAccelerateConfig(const std::vector<std::string>& environment) {
  const auto value = [&](const char* name) {
    const char* const found = FindIn(environment, name);
    return std::string(found == nullptr ? "" : found);
  };
  const std::string home = value("HOME");
  std::string folder = value("HF_HOME");
  if (folder.empty()) {
    const std::string cache = value("XDG_CACHE_HOME");
    folder = (cache.empty() ? home + "/.cache" : cache) + "/huggingface";
  }
  folder = Expanded(folder, home) + "/accelerate/default_config";
  for (const char* ending : {".yaml", ".json"}) {
    if (access((folder + ending).c_str(), F_OK) == 0) return folder + ending;
  }
  return "";
}

Result<std::optional<AccelerateConfig>> ReadAccelerateConfig(
    const LaunchOptions& options, const std::vector<std::string>& environment,
    const std::string& cwd) {
  if (!options.accelerate_config) return std::optional<AccelerateConfig>();
  if (options.mode == LaunchOptions::Mode::kTrain || options.runs_trainer) {
    return Error{ExitCode::kUsage, std::string(kOption) +
                                       " is for Python programs that use accelerate; leave it out "
                                       "(dslaunch train has a recipe)"};
  }
  std::string path = *options.accelerate_config;
  if (path == kDefault) {
    path = DefaultAccelerateConfig(environment);
    if (path.empty()) {
      return Error{ExitCode::kUsage,
                   std::string(kOption) +
                       " default: accelerate has no default_config.yaml here (in HF_HOME, else "
                       "~/.cache/huggingface, below accelerate/); write it with: accelerate "
                       "config, or name a file"};
    }
  } else {
    path = (fs::path(cwd) / path).lexically_normal().string();
  }
  DSL_TRY_ASSIGN(std::string text, ReadTextFile(path));
  DSL_TRY_ASSIGN(AccelerateConfig config, ParseAccelerateConfig(std::move(text), path));
  if (config.chooses_gpus && (options.include || options.exclude || options.virtual_local_rank)) {
    return Error{ExitCode::kUsage, path + ": gpu_ids chooses the GPUs, and so does " +
                                       (options.include   ? "--include"
                                        : options.exclude ? "--exclude"
                                                          : "--virtual_local_rank") +
                                       "; leave one of them out"};
  }
  return std::optional(std::move(config));
}

void TakeNumProcesses(const AccelerateConfig& config, const PlanInfo& info,
                      LaunchOptions& options) {
  const bool counts = options.num_gpus || options.slots_from || options.num_ranks ||
                      options.has_rank_range() || options.include || options.exclude ||
                      options.num_nodes || options.min_nodes;
  const bool names_nodes = options.per_node || !options.hosts.empty() ||
                           HostfileFor(options, info) || UsesSlurm(options, info) ||
                           UsesBatchNodes(options, info);
  if (counts || names_nodes || !config.num_processes || config.num_machines.value_or(1) != 1)
    return;
  options.num_gpus = std::min(*config.num_processes, kMaxSlots);
  options.num_gpus_name = "num_processes in " + config.path + ":";
  options.notices.push_back(Count(static_cast<size_t>(*options.num_gpus), "rank") +
                            " by num_processes in " + SanitizeForTerminal(config.path) +
                            "; --num_gpus N starts another number");
}

std::string CountsNotice(const AccelerateConfig& config, int ranks, int nodes) {
  std::string others;
  if (ranks > 0 && config.num_processes && *config.num_processes != ranks)
    others = "num_processes " + std::to_string(*config.num_processes);
  if (nodes > 0 && config.num_machines && *config.num_machines != nodes) {
    others +=
        (others.empty() ? "" : " and ") + ("num_machines " + std::to_string(*config.num_machines));
  }
  if (others.empty()) return "";
  std::string own = nodes > 0 ? " on " + Count(static_cast<size_t>(nodes), "node") : "";
  own = ranks > 0 ? Count(static_cast<size_t>(ranks), "rank") + own
                  : Count(static_cast<size_t>(nodes), "node");
  return SanitizeForTerminal(config.path) + ": " + others + " not obeyed, as this job has " + own;
}

std::string HuggingFaceImport(std::string_view source) {
  for (std::string_view line : SplitLines(source)) {
    line.remove_prefix(std::min(line.find_first_not_of(" \t"), line.size()));
    const bool imports = line.starts_with("import ");
    if (!imports && !line.starts_with("from ")) continue;
    line.remove_prefix(imports ? 7 : 5);
    while (true) {
      std::string module = ModuleAt(line);
      if (!module.empty()) return module;
      const size_t comma = line.find(',');
      if (!imports || comma == std::string_view::npos) break;
      line.remove_prefix(comma + 1);
    }
  }
  return "";
}

std::string IgnoredDefaultNotice(const LaunchOptions& options,
                                 const std::vector<std::string>& environment,
                                 const std::string& cwd) {
  const bool runs_program = options.mode == LaunchOptions::Mode::kProgram && !options.runs_trainer;
  if (options.accelerate_config || !runs_program) return "";
  const std::string file = DefaultAccelerateConfig(environment);
  if (file.empty()) return "";
  const std::string source = SourceOf(options, cwd);
  const std::string module =
      source.empty() ? "" : HuggingFaceImport(ReadBeginning(source, kMaxSourceBytes));
  if (module.empty()) return "";
  return SanitizeForTerminal(file) + " is not obeyed (" +
         SanitizeForTerminal(fs::path(source).filename().string()) + " imports " + module + "); " +
         kOption + " default obeys it";
}

Result<std::optional<AccelerateConfig>> TakeAccelerateConfig(
    const std::vector<std::string>& environment, const std::string& cwd, LaunchOptions& options) {
  DSL_TRY_ASSIGN(std::optional<AccelerateConfig> config,
                 ReadAccelerateConfig(options, environment, cwd));
  if (config) TakeNumProcesses(*config, ReadPlanInfo(), options);
  std::string notice = IgnoredDefaultNotice(options, environment, cwd);
  if (!notice.empty()) options.notices.push_back(std::move(notice));
  return config;
}

}  // namespace dslaunch
