#include <algorithm>
#include <array>
#include <utility>

#include "base/text/split_lines.h"
#include "cli/launchers/slurm_ports.h"
#include "cli/launchers/start_all.h"
#include "proto/contract/slurm_step.h"

namespace dslaunch {
namespace {

using Words = std::vector<std::string>;

// Requests of the allocation that srun would also apply to its step. They are removed, because they
// contradict the requests of SlurmShare: with --gpus=8 on 2 nodes of 4 GPUs, the nodes of a step
// may get 1 and 4 GPUs.
constexpr std::array<const char*, 12> kRequestVariables = {
    "SLURM_GPUS",     "SLURM_GPUS_PER_NODE",  "SLURM_GPUS_PER_SOCKET", "SLURM_GPUS_PER_TASK",
    "SLURM_GPU_BIND", "SLURM_NTASKS_PER_GPU", "SLURM_NTASKS_PER_TRES", "SLURM_CPUS_PER_GPU",
    "SLURM_GRES",     "SLURM_STEP_GRES",      "SLURM_TRES_PER_TASK",   "SLURM_TRES_BIND"};

void Append(Words& words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
}

// Returns the words that call srun without kRequestVariables in its environment.
Words FirstWords(const LauncherProgram& program) {
  Words words = {"/usr/bin/env"};
  for (const char* variable : kRequestVariables) Append(words, {"-u", variable});
  Append(words, program.words);
  return words;
}

// Returns the options for a step on `nodes` nodes that have this share. The GPUs of a single node
// are requested by --gpus, because Slurm 22.05 counts --gres against the mean of an allocation with
// --gpus.
Words ShareOptions(const SlurmShare& share, size_t nodes) {
  Words words;
  if (share.component >= 0) words.push_back("--het-group=" + std::to_string(share.component));
  if (nodes > 1 || share.gpus == 0) {
    if (!share.gres.empty()) words.push_back("--gres=" + share.gres);
    return words;
  }
  std::string others;
  for (std::string_view left = share.gres; !left.empty();) {
    const std::string_view item = left.substr(0, left.find(','));
    left.remove_prefix(std::min(item.size() + 1, left.size()));
    if (item != "gpu" && !item.starts_with("gpu:"))
      others += (others.empty() ? "" : ",") + std::string(item);
  }
  words.push_back("--gpus=" + std::to_string(share.gpus));
  if (!others.empty()) words.push_back("--gres=" + others);
  return words;
}

// Returns the share of a node; an empty share if it is not known.
SlurmShare ShareOf(const LauncherProgram& program, const std::string& host) {
  const auto found = program.shares.find(host);
  return found == program.shares.end() ? SlurmShare() : found->second;
}

// The nodes on which one component of srun's command line starts agents.
struct Component {
  SlurmShare share;
  std::vector<NodeTarget> nodes;
};

// Returns whether the nodes of this component of the job have different shares.
bool IsUnequal(const LauncherProgram& program, int component) {
  const SlurmShare* first = nullptr;
  for (const auto& [host, share] : program.shares) {
    if (share.component != component) continue;
    if (first != nullptr && share != *first) return true;
    first = &share;
  }
  return false;
}

// Returns the components of srun's command line, in the order of the nodes.
std::vector<Component> ComponentsOf(const LauncherProgram& program,
                                    const std::vector<NodeTarget>& nodes) {
  std::vector<Component> components;
  // Indexes in `components`, by component of the job, for components whose nodes all have the same
  // share.
  std::map<int, size_t> by_component;
  for (const NodeTarget& node : nodes) {
    const SlurmShare share = ShareOf(program, node.host);
    const auto found = by_component.find(share.component);
    if (found != by_component.end()) {
      components[found->second].nodes.push_back(node);
      continue;
    }
    if (!IsUnequal(program, share.component)) by_component[share.component] = components.size();
    components.push_back({share, {node}});
  }
  return components;
}

Words SrunOnAll(const LauncherProgram& program, const std::vector<NodeTarget>& nodes,
                const std::string& script) {
  Words words = FirstWords(program);
  bool is_first = true;
  for (const Component& component : ComponentsOf(program, nodes)) {
    if (!std::exchange(is_first, false)) words.emplace_back(":");
    const std::string count = std::to_string(component.nodes.size());
    Append(words, ShareOptions(component.share, component.nodes.size()));
    Append(
        words,
        {"--overlap", "--whole", "--nodes=" + count, "--ntasks=" + count, "--ntasks-per-node=1",
         "--nodelist=" + JoinedHosts(component.nodes, /*with_user=*/false), "--distribution=block",
         "--cpu-bind=none", "--mpi=none", "--export=ALL", "--input=none", "--unbuffered", "--quiet",
         "--wait=0", "--kill-on-bad-exit=0", "--no-kill", "/usr/bin/env"});
    Append(words, program.request_variables);
    Append(words, {"/bin/sh", "-c", script});
  }
  return words;
}

// Returns the words that run `script` on a node. The started programs get no variables of their
// place in the step, because ranks would use these variables as their own.
Words SrunOnNode(const LauncherProgram& program, const NodeTarget& node,
                 const std::string& script) {
  Words words = FirstWords(program);
  Append(words, ShareOptions(ShareOf(program, node.host), 1));
  Append(words, {"--overlap", "--whole", "--nodes=1", "--ntasks=1", "--nodelist=" + node.host,
                 "--cpu-bind=none", "--mpi=none", "--export=ALL", "--unbuffered", "--quiet",
                 "--wait=0", "--kill-on-bad-exit=0", "--no-kill", "/usr/bin/env"});
  for (const std::string_view variable : kSlurmStepVariables)
    Append(words, {"-u", std::string(variable)});
  Append(words, program.request_variables);
  Append(words, {"/bin/sh", "-c", script});
  return words;
}

void CompleteSrun(LauncherProgram& program, bool,
                  const std::function<const char*(const char*)>& getenv) {
  for (const char* name : kRequestVariables) {
    if (const char* const value = getenv(name); value != nullptr)
      program.request_variables.push_back(std::string(name) + "=" + value);
  }
}

// Removes srun's remark that Slurm does not bind tasks, because dslaunch binds ranks itself.
std::string WithoutSrunRemarks(std::string_view output) {
  std::string rest;
  for (const std::string_view line : SplitLines(output)) {
    if (line != "srun: cluster configuration lacks support for cpu binding")
      rest += std::string(line) + "\n";
  }
  return rest;
}

// Returns the reason in a line such as "STEP 39.0 ON n1 CANCELLED AT 2026-11-28T13:06:26 DUE TO
// TIME LIMIT"; empty if no line has this form.
std::string ReadSlurmCancellation(std::string_view output) {
  constexpr std::string_view kStars = "*** ";
  for (std::string_view line : SplitLines(output)) {
    if (!line.starts_with("slurmstepd") || line.find(" CANCELLED AT ") == std::string_view::npos)
      continue;
    const size_t begin = line.find(kStars);
    if (begin == std::string_view::npos) continue;
    line.remove_prefix(begin + kStars.size());
    return std::string(line.substr(0, line.find(" ***")));
  }
  return "";
}

}  // namespace

const StartAll kSrun = {.place = "$SLURMD_NODENAME",
                        .place_is_host = true,
                        .one_node = "--overlap -w ",
                        .command = SrunOnAll,
                        .node_command = SrunOnNode,
                        .complete = CompleteSrun,
                        .without_remarks = WithoutSrunRemarks,
                        .read_cancellation = ReadSlurmCancellation,
                        .ports = OwnSrunPortRange};

}  // namespace dslaunch
