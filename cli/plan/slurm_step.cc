#include "cli/plan/slurm_step.h"

#include <charconv>
#include <utility>

#include "base/count.h"
#include "base/text/sanitize.h"
#include "cli/plan/slurm_node_list.h"

namespace dslaunch {
namespace {

// The range from which a step's port is derived. It is below the range from which the kernel
// chooses ephemeral ports.
constexpr uint32_t kFirstPort = 20'000;
constexpr uint32_t kNumPorts = 12'000;

Error BadVariable(std::string message) { return {ExitCode::kBadInput, std::move(message)}; }

Result<std::string> Read(const GetVariable& getenv, const char* name) {
  const char* const value = getenv(name);
  if (value == nullptr || *value == '\0')
    return BadVariable(std::string(name) + " is not set, though srun started this command");
  return std::string(value);
}

Result<int> ReadNumber(const GetVariable& getenv, const char* name) {
  DSL_TRY_ASSIGN(const std::string text, Read(getenv, name));
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < 0)
    return BadVariable(std::string(name) + "=" + Truncate(text) + " is not a number");
  return number;
}

int PortOf(const std::string& name) {
  uint32_t hash = 2'166'136'261;  // offset basis of FNV-1a
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 16'777'619;
  return static_cast<int>(kFirstPort + hash % kNumPorts);
}

}  // namespace

Result<std::optional<SlurmStep>> ReadSlurmStep(const GetVariable& getenv) {
  const char* const tasks = getenv("SLURM_STEP_NUM_TASKS");
  if (tasks == nullptr || getenv("SLURM_PROCID") == nullptr) return std::optional<SlurmStep>();
  SlurmStep step;
  DSL_TRY_ASSIGN(step.num_tasks, ReadNumber(getenv, "SLURM_STEP_NUM_TASKS"));
  if (step.num_tasks < 2) return std::optional<SlurmStep>();
  DSL_TRY_ASSIGN(const int job, ReadNumber(getenv, "SLURM_JOB_ID"));
  DSL_TRY_ASSIGN(const int number, ReadNumber(getenv, "SLURM_STEP_ID"));
  step.name = std::to_string(job) + "." + std::to_string(number);
  DSL_TRY_ASSIGN(step.node_id, ReadNumber(getenv, "SLURM_NODEID"));
  DSL_TRY_ASSIGN(const std::string list, Read(getenv, "SLURM_STEP_NODELIST"));
  Result<std::vector<std::string>> nodes = ExpandNodeList(list);
  if (!nodes.ok()) return BadVariable("SLURM_STEP_NODELIST: " + nodes.error().message);
  step.nodes = *std::move(nodes);
  if (static_cast<size_t>(step.node_id) >= step.nodes.size()) {
    return BadVariable("SLURM_NODEID=" + std::to_string(step.node_id) +
                       ", but SLURM_STEP_NODELIST has " + Count(step.nodes.size(), "node"));
  }
  return std::optional(std::move(step));
}

bool IsPlacedBySlurm(const LaunchOptions& options) {
  return !options.per_node && !options.launcher && !options.hostfile && options.hosts.empty() &&
         !options.include && !options.exclude && options.exec_command.empty() &&
         !options.force_multi;
}

Result<void> PlaceInStep(const SlurmStep& step, LaunchOptions& options) {
  const int nodes = static_cast<int>(step.nodes.size());
  if (step.num_tasks != nodes) {
    return Error{ExitCode::kUsage,
                 "srun starts " + std::to_string(step.num_tasks) + " tasks on " +
                     Count(step.nodes.size(), "node") +
                     ", and dslaunch starts the ranks of a node itself: give srun "
                     "--ntasks-per-node=1 and dslaunch --num_gpus N, or leave srun out"};
  }
  const char* const reaches_nodes = options.ssh_port != 0          ? "--ssh_port"
                                    : !options.ssh_command.empty() ? "--ssh_command"
                                    : !options.agent_dir.empty()   ? "--agent_dir"
                                    : options.fanout               ? "--fanout"
                                                                   : nullptr;
  if (reaches_nodes != nullptr) {
    return Error{ExitCode::kUsage, std::string(reaches_nodes) +
                                       " is for reaching nodes from here, and srun starts this "
                                       "command on each node; leave it out, or leave srun out"};
  }
  if (options.num_nodes.value_or(nodes) != nodes) {
    return Error{ExitCode::kUsage, options.num_nodes_name + " " +
                                       std::to_string(*options.num_nodes) + ", but srun has " +
                                       Count(step.nodes.size(), "node") +
                                       "; give srun the same number, or leave srun out"};
  }
  if (options.min_nodes) {
    options.max_nodes = options.max_nodes.value_or(nodes);
  } else {
    options.num_nodes = nodes;
  }
  PerNode place;
  place.node_rank = step.node_id;
  place.host = step.nodes.front();
  place.port = PortOf(step.name);
  place.id = "slurm-" + step.name;
  options.per_node = std::move(place);
  return {};
}

}  // namespace dslaunch
