#include "cli/plan/slurm_allocation.h"

#include <algorithm>
#include <charconv>
#include <initializer_list>
#include <utility>

#include "base/count.h"
#include "base/sanitize.h"
#include "cli/plan/slurm_node_list.h"

namespace dslaunch {
namespace {

constexpr int kMaxCount = 1 << 20;  // of tasks, cores or GPUs of one node

Error Bad(std::string message) { return {ExitCode::kBadInput, std::move(message)}; }

std::optional<int> ReadCount(std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0 || value > kMaxCount)
    return std::nullopt;
  return value;
}

// Empty where the variable is not set.
std::string Value(const GetVariable& getenv, const char* name) {
  const char* const value = getenv(name);
  return value != nullptr ? value : "";
}

// The first of these that is set, with its value; else the last.
std::pair<const char*, std::string> FirstSet(const GetVariable& getenv,
                                             std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (std::string value = Value(getenv, name); !value.empty()) return {name, std::move(value)};
  }
  return {*(names.end() - 1), ""};
}

// "2(x4),3": 2 2 2 2 3, one for each of `nodes`.
bool ExpandCounts(std::string_view text, size_t nodes, std::vector<int>& counts) {
  for (size_t at = 0; at <= text.size();) {
    const size_t comma = std::min(text.find(',', at), text.size());
    std::string_view item = text.substr(at, comma - at);
    at = comma + 1;
    std::optional<int> repeated = 1;
    if (const size_t times = item.find("(x"); times != std::string_view::npos) {
      if (item.back() != ')') return false;
      repeated = ReadCount(item.substr(times + 2, item.size() - times - 3));
      item = item.substr(0, times);
    }
    const std::optional<int> count = ReadCount(item);
    if (!count || !repeated || static_cast<size_t>(*repeated) > nodes - counts.size()) return false;
    counts.insert(counts.end(), static_cast<size_t>(*repeated), *count);
  }
  return counts.size() == nodes;
}

// "4", "a100:4" or "a100:2,v100:2".
std::optional<int> ReadGpus(std::string_view text) {
  int all = 0;
  for (size_t at = 0; at <= text.size();) {
    const size_t comma = std::min(text.find(',', at), text.size());
    const std::string_view item = text.substr(at, comma - at);
    at = comma + 1;
    const size_t colon = item.rfind(':');
    const std::optional<int> count =
        ReadCount(colon == std::string_view::npos ? item : item.substr(colon + 1));
    if (!count) return std::nullopt;
    all = std::min(all + *count, kMaxCount);
  }
  return all;
}

}  // namespace

Result<std::optional<std::vector<std::string>>> ReadSlurmNodes(const GetVariable& getenv) {
  const auto [list_name, list] = FirstSet(getenv, {"SLURM_JOB_NODELIST", "SLURM_NODELIST"});
  if (list.empty()) return std::optional<std::vector<std::string>>();
  Result<std::vector<std::string>> names = ExpandNodeList(list);
  if (!names.ok()) return Bad(std::string(list_name) + ": " + names.error().message);
  const auto [count_name, count] = FirstSet(getenv, {"SLURM_JOB_NUM_NODES", "SLURM_NNODES"});
  if (!count.empty() && count != std::to_string(names->size())) {
    return Bad(std::string(list_name) + " has " + Count(names->size(), "node") + ", but " +
               count_name + " is " + Truncate(count) +
               "; unset what is left of another job of Slurm's");
  }
  return std::optional(*std::move(names));
}

Result<std::optional<SlurmAllocation>> ReadSlurmAllocation(const GetVariable& getenv) {
  SlurmAllocation allocation;
  allocation.job_id = Value(getenv, "SLURM_JOB_ID");
  if (allocation.job_id.empty()) return std::optional<SlurmAllocation>();
  DSL_TRY_ASSIGN(std::optional<std::vector<std::string>> names, ReadSlurmNodes(getenv));
  if (!names) return std::optional<SlurmAllocation>();
  if (!ReadCount(allocation.job_id))
    return Bad("SLURM_JOB_ID=" + Truncate(allocation.job_id) + " is no job's number");
  for (std::string& name : *names) allocation.nodes.push_back({std::move(name)});
  struct PerNode {
    const char* variable;
    int SlurmNode::*count;
  };
  for (const auto& [variable, count] : {PerNode{"SLURM_TASKS_PER_NODE", &SlurmNode::tasks},
                                        PerNode{"SLURM_JOB_CPUS_PER_NODE", &SlurmNode::cores}}) {
    std::vector<int> counts;
    // Inside a step, SLURM_TASKS_PER_NODE counts on the step's nodes, not on the allocation's.
    if (!ExpandCounts(Value(getenv, variable), allocation.nodes.size(), counts)) continue;
    for (size_t i = 0; i < counts.size(); ++i) allocation.nodes[i].*count = std::max(counts[i], 1);
  }
  const auto [gpus_name, gpus_text] =
      FirstSet(getenv, {"SLURM_GPUS_ON_NODE", "SLURM_GPUS_PER_NODE"});
  const std::optional<int> gpus = gpus_text.empty() ? 0 : ReadGpus(gpus_text);
  if (!gpus)
    return Bad(std::string(gpus_name) + "=" + Truncate(gpus_text) + " is no number of GPUs");
  allocation.gpus_per_node = *gpus;
  const std::string tasks = Value(getenv, "SLURM_STEP_NUM_TASKS");
  allocation.in_step_of_many = !tasks.empty() && tasks != "1";
  return std::optional(std::move(allocation));
}

std::vector<std::string> SrunCommand(const std::string& job_id) {
  return {"srun", "--jobid=" + job_id};
}

std::vector<std::string> SallocCommand(const std::vector<std::string>& slurm_args,
                                       std::optional<int> num_nodes,
                                       const std::vector<std::string>& arguments) {
  std::vector<std::string> words = {"salloc", "--quiet"};
  if (num_nodes) words.push_back("--nodes=" + std::to_string(*num_nodes));
  words.insert(words.end(), slurm_args.begin(), slurm_args.end());
  words.insert(words.end(), arguments.begin(), arguments.end());
  return words;
}

}  // namespace dslaunch
