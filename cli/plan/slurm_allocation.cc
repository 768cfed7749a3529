#include "cli/plan/slurm_allocation.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <initializer_list>
#include <iterator>
#include <unordered_map>
#include <utility>

#include "base/count.h"
#include "base/text/sanitize.h"
#include "cli/plan/slurm_node_list.h"

namespace dslaunch {
namespace {

constexpr int kMaxCount = 1 << 20;    // limit of tasks, cores or GPUs on a node
constexpr int kMaxComponents = 1024;  // limit for a heterogeneous job; Slurm's own limit is 128

Error Bad(std::string message) { return {ExitCode::kBadInput, std::move(message)}; }

std::optional<int> ReadCount(std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0 || value > kMaxCount)
    return std::nullopt;
  return value;
}

// Returns the value of a variable; empty if the variable is not set.
std::string Value(const GetVariable& getenv, const char* name) {
  const char* const value = getenv(name);
  return value != nullptr ? value : "";
}

// Parses a list such as "2(x4),3" into 2 2 2 2 3, one number for each of `nodes`. Returns false if
// the list is malformed.
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

// Removes the text up to the next comma outside of parentheses from `list` and returns it.
std::string_view TakeItem(std::string_view& list) {
  size_t end = 0;
  for (bool inside = false; end < list.size() && (inside || list[end] != ','); ++end)
    inside = list[end] == '(' || (inside && list[end] != ')');
  const std::string_view item = list.substr(0, end);
  list.remove_prefix(std::min(end + 1, list.size()));
  return item;
}

// Returns the number of GPUs in "4", "a100:4" or "a100:2,v100:2".
std::optional<int> ReadGpus(std::string_view text) {
  int all = 0;
  do {
    const std::string_view item = TakeItem(text);
    const size_t colon = item.rfind(':');
    const std::optional<int> count =
        ReadCount(colon == std::string_view::npos ? item : item.substr(colon + 1));
    if (!count) return std::nullopt;
    all = std::min(all + *count, kMaxCount);
  } while (!text.empty());
  return all;
}

// Parses the generic resources of a node, such as "gpu:a100:4(IDX:0-1,3-4),nic:1".
void ReadNodeGres(std::string_view text, SlurmNode& node) {
  node.gpus = 0;
  node.gres.clear();
  while (!text.empty()) {
    std::string_view item = TakeItem(text);
    item = item.substr(0, item.find('('));
    const bool is_plain = std::ranges::all_of(item, [](unsigned char c) {
      return std::isalnum(c) != 0 || c == ':' || c == '_' || c == '-' || c == '.';
    });
    if (item.empty() || !is_plain) continue;
    node.gres += (node.gres.empty() ? "" : ",") + std::string(item);
    if (item != "gpu" && !item.starts_with("gpu:")) continue;
    const std::optional<int> count = ReadCount(item.substr(item.rfind(':') + 1));
    node.gpus = std::min(node.gpus + count.value_or(1), kMaxCount);
  }
}

// Returns the suffix of variables for a component of a heterogeneous job; empty for any other job.
std::string SuffixOf(int component) {
  return component < 0 ? "" : "_HET_GROUP_" + std::to_string(component);
}

// Returns the variable of a component, or of the job if `component` is negative; empty if it is not
// set.
std::string ValueOf(const GetVariable& getenv, const char* name, int component) {
  return Value(getenv, (name + SuffixOf(component)).c_str());
}

// Returns the components of a heterogeneous job; {-1} for any other job, and also in a step of
// several components, where SLURM_JOB_NODELIST has the nodes of all components.
Result<std::vector<int>> ComponentsOf(const GetVariable& getenv) {
  const std::string text = Value(getenv, "SLURM_HET_SIZE");
  if (text.empty() || ValueOf(getenv, "SLURM_JOB_NODELIST", 0).empty()) return std::vector<int>{-1};
  const std::optional<int> count = ReadCount(text);
  if (!count || *count < 1 || *count > kMaxComponents)
    return Bad("SLURM_HET_SIZE=" + Truncate(text) + " is not a valid number of components");
  std::vector<int> components;
  for (int i = 0; i < *count; ++i) components.push_back(i);
  return components;
}

// Returns the name and value of the first of these variables that is set for a component; the last
// variable if none is set.
std::pair<std::string, std::string> FirstSet(const GetVariable& getenv, int component,
                                             std::initializer_list<const char*> names) {
  for (const char* name : names) {
    std::string value = ValueOf(getenv, name, component);
    if (!value.empty()) return {name + SuffixOf(component), std::move(value)};
  }
  return {*(names.end() - 1) + SuffixOf(component), ""};
}

std::pair<std::string, std::string> NodeListOf(const GetVariable& getenv, int component) {
  return FirstSet(getenv, component, {"SLURM_JOB_NODELIST", "SLURM_NODELIST"});
}

Result<std::vector<std::string>> ReadComponentNodes(const GetVariable& getenv, int component) {
  const auto [list_name, list] = NodeListOf(getenv, component);
  if (list.empty()) return Bad(list_name + " is not set, though the job has this component");
  Result<std::vector<std::string>> names = ExpandNodeList(list);
  if (!names.ok()) return Bad(list_name + ": " + names.error().message);
  const auto [count_name, count] =
      FirstSet(getenv, component, {"SLURM_JOB_NUM_NODES", "SLURM_NNODES"});
  if (!count.empty() && count != std::to_string(names->size())) {
    return Bad(list_name + " has " + Count(names->size(), "node") + ", but " + count_name + " is " +
               Truncate(count) + "; unset what is left of another job of Slurm's");
  }
  return names;
}

// Sets the GPUs of the nodes from variables alone. Slurm sets these variables only if the user
// requested GPUs by node. In steps and batch scripts they count the GPUs of the first node.
Result<void> ReadGpuVariables(const GetVariable& getenv, int component,
                              std::vector<SlurmNode>& nodes) {
  const auto [name, text] =
      FirstSet(getenv, component, {"SLURM_GPUS_ON_NODE", "SLURM_GPUS_PER_NODE"});
  const std::optional<int> gpus = text.empty() ? 0 : ReadGpus(text);
  if (!gpus) return Bad(name + "=" + Truncate(text) + " is not a number of GPUs");
  for (SlurmNode& node : nodes) node.gpus = *gpus;
  return {};
}

Result<std::vector<SlurmNode>> ReadComponent(const GetVariable& getenv, int component) {
  DSL_TRY_ASSIGN(std::vector<std::string> names, ReadComponentNodes(getenv, component));
  std::vector<SlurmNode> nodes;
  for (std::string& name : names) nodes.emplace_back().name = std::move(name);
  struct PerNode {
    const char* variable;
    int SlurmNode::*count;
  };
  // If no number of tasks was requested, SLURM_TASKS_PER_NODE counts the tasks that would fit,
  // which is the number of cores if the job has the node alone. The variable is then ignored.
  const bool asked = !ValueOf(getenv, "SLURM_NTASKS", component).empty();
  for (const auto& [variable, count] : {PerNode{"SLURM_TASKS_PER_NODE", &SlurmNode::tasks},
                                        PerNode{"SLURM_JOB_CPUS_PER_NODE", &SlurmNode::cores}}) {
    std::vector<int> counts;
    // Inside a step, SLURM_TASKS_PER_NODE lists the nodes of the step, not of the allocation, so a
    // list of the wrong length is ignored.
    if (count == &SlurmNode::tasks && !asked) continue;
    if (!ExpandCounts(ValueOf(getenv, variable, component), nodes.size(), counts)) continue;
    for (size_t i = 0; i < counts.size(); ++i) nodes[i].*count = std::max(counts[i], 1);
  }
  for (SlurmNode& node : nodes) node.component = component;
  DSL_TRY(ReadGpuVariables(getenv, component, nodes));
  return nodes;
}

}  // namespace

Result<std::optional<std::vector<std::string>>> ReadSlurmNodes(const GetVariable& getenv) {
  DSL_TRY_ASSIGN(const std::vector<int> components, ComponentsOf(getenv));
  if (NodeListOf(getenv, components.front()).second.empty())
    return std::optional<std::vector<std::string>>();
  std::vector<std::string> all;
  for (const int component : components) {
    DSL_TRY_ASSIGN(std::vector<std::string> names, ReadComponentNodes(getenv, component));
    all.insert(all.end(), std::make_move_iterator(names.begin()),
               std::make_move_iterator(names.end()));
  }
  return std::optional(std::move(all));
}

Result<std::optional<SlurmAllocation>> ReadSlurmAllocation(const GetVariable& getenv) {
  SlurmAllocation allocation;
  allocation.job_id = Value(getenv, "SLURM_JOB_ID");
  if (allocation.job_id.empty()) return std::optional<SlurmAllocation>();
  DSL_TRY_ASSIGN(const std::vector<int> components, ComponentsOf(getenv));
  if (NodeListOf(getenv, components.front()).second.empty())
    return std::optional<SlurmAllocation>();
  if (!ReadCount(allocation.job_id))
    return Bad("SLURM_JOB_ID=" + Truncate(allocation.job_id) + " is not a job id");
  for (const int component : components) {
    DSL_TRY_ASSIGN(std::vector<SlurmNode> nodes, ReadComponent(getenv, component));
    allocation.nodes.insert(allocation.nodes.end(), std::make_move_iterator(nodes.begin()),
                            std::make_move_iterator(nodes.end()));
  }
  const std::string tasks = Value(getenv, "SLURM_STEP_NUM_TASKS");
  allocation.in_step_of_many = !tasks.empty() && tasks != "1";
  return std::optional(std::move(allocation));
}

void ReadGres(std::string_view job, SlurmAllocation& allocation) {
  std::unordered_map<std::string_view, SlurmNode*> by_name;
  for (SlurmNode& node : allocation.nodes) {
    by_name.emplace(node.name, &node);
    node.gpus = 0;
  }
  constexpr std::string_view kNodes = "Nodes=";
  constexpr std::string_view kGres = "GRES=";
  std::vector<std::string> named;
  while (!job.empty()) {
    const size_t end = std::min(job.find_first_of(" \t\n"), job.size());
    const std::string_view word = job.substr(0, end);
    job.remove_prefix(std::min(end + 1, job.size()));
    if (word.starts_with(kNodes)) {
      Result<std::vector<std::string>> names = ExpandNodeList(word.substr(kNodes.size()));
      named = names.ok() ? *std::move(names) : std::vector<std::string>();
    } else if (word.starts_with(kGres)) {
      for (const std::string& name : named) {
        const auto node = by_name.find(name);
        if (node != by_name.end()) ReadNodeGres(word.substr(kGres.size()), *node->second);
      }
    }
  }
  allocation.gpus_unknown.clear();
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
