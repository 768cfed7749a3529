#include "cli/launchers/engine_command.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <filesystem>
#include <map>
#include <set>
#include <utility>

#include "base/text/sanitize.h"
#include "base/text/split_lines.h"
#include "base/text/substitute.h"
#include "cli/transport/ssh_bootstrap.h"

namespace dslaunch {
namespace {

Error Usage(std::string message) { return {ExitCode::kUsage, std::move(message)}; }

// Neither engine takes more as the name of one host.
bool IsPlainHost(const std::string& host) {
  return !host.empty() && host.front() != '-' && std::ranges::all_of(host, [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '.' || c == '-' || c == '_';
  });
}

std::string Joined(const std::vector<NodeTarget>& nodes, bool with_user) {
  std::string list;
  for (const NodeTarget& node : nodes) {
    list += list.empty() ? "" : ",";
    if (with_user && !node.user.empty()) list += node.user + "@";
    list += node.host;
  }
  return list;
}

void Append(std::vector<std::string>& words, const std::vector<std::string>& more) {
  words.insert(words.end(), more.begin(), more.end());
}

// Nodes that one component of srun's command line starts agents on.
struct SrunComponent {
  SlurmShare share;
  std::vector<NodeTarget> nodes;
};

// Whether the nodes of this component of the job have different shares.
bool IsUnequal(const EngineWords& engine, int component) {
  const SlurmShare* first = nullptr;
  for (const auto& [host, share] : engine.shares) {
    if (share.component != component) continue;
    if (first != nullptr && share != *first) return true;
    first = &share;
  }
  return false;
}

// In the order of the nodes. A step has the same of each node, so nodes that have unequal shares
// are components of their own.
std::vector<SrunComponent> SrunComponents(const EngineWords& engine,
                                          const std::vector<NodeTarget>& nodes) {
  std::vector<SrunComponent> components;
  std::map<int, size_t> by_component;  // of the job, where all nodes have the same share
  for (const NodeTarget& node : nodes) {
    const SlurmShare share = ShareOf(engine, node.host);
    const auto found = by_component.find(share.component);
    if (found != by_component.end()) {
      components[found->second].nodes.push_back(node);
      continue;
    }
    if (!IsUnequal(engine, share.component)) by_component[share.component] = components.size();
    components.push_back({share, {node}});
  }
  return components;
}

void AppendSrunComponents(const EngineWords& engine, const std::vector<NodeTarget>& nodes,
                          const std::string& script, std::vector<std::string>& words) {
  bool is_first = true;
  for (const SrunComponent& component : SrunComponents(engine, nodes)) {
    if (!std::exchange(is_first, false)) words.emplace_back(":");
    const std::string count = std::to_string(component.nodes.size());
    Append(words, SlurmShareWords(component.share, component.nodes.size()));
    Append(words,
           {"--overlap", "--whole", "--nodes=" + count, "--ntasks=" + count, "--ntasks-per-node=1",
            "--nodelist=" + Joined(component.nodes, false), "--distribution=block",
            "--cpu-bind=none", "--mpi=none", "--export=ALL", "--input=none", "--unbuffered",
            "--quiet", "--wait=0", "--kill-on-bad-exit=0", "--no-kill", "/usr/bin/env"});
    Append(words, engine.request_variables);
    Append(words, {"/bin/sh", "-c", script});
  }
}

}  // namespace

std::vector<std::string> SrunWords(const EngineWords& engine) {
  std::vector<std::string> words = {"/usr/bin/env"};
  for (const char* variable : kSlurmRequestVariables) Append(words, {"-u", variable});
  Append(words, engine.words);
  return words;
}

std::vector<std::string> SlurmShareWords(const SlurmShare& share, size_t nodes) {
  std::vector<std::string> words;
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

SlurmShare ShareOf(const EngineWords& engine, const std::string& host) {
  const auto found = engine.shares.find(host);
  return found == engine.shares.end() ? SlurmShare() : found->second;
}

Result<void> CheckEngineNodes(Engine engine, const std::vector<NodeTarget>& nodes) {
  const std::string name = engine == Engine::kOpenMpi ? "--launcher openmpi"
                           : engine == Engine::kPdsh  ? "--launcher pdsh"
                                                      : "--launcher slurm";
  std::set<std::string> hosts;
  for (const NodeTarget& node : nodes) {
    if (!IsPlainHost(node.host)) {
      return Usage(name + ": " + Truncate(node.host) +
                   " cannot be given to it as a host; use a name of letters, digits, '.', '-' and "
                   "'_'");
    }
    if (node.port != 0) {
      return Usage(name + ": " + node.name + " has port " + std::to_string(node.port) +
                   ", which it cannot be given; set it in ssh_config");
    }
    if (!node.user.empty() && (engine != Engine::kPdsh || !IsPlainHost(node.user))) {
      return Usage(name + ": " + node.name + " has user " + Truncate(node.user) +
                   ", which it cannot be given; set it in ssh_config");
    }
    if (!hosts.insert(node.host).second) {
      return Usage(name + ": " + Truncate(node.host) +
                   " is the host of two nodes, and it starts one program on each host; leave one "
                   "of them out");
    }
  }
  return {};
}

std::string_view PlaceIn(Engine engine) {
  switch (engine) {
    case Engine::kOpenMpi:
      return "$OMPI_COMM_WORLD_RANK";
    case Engine::kPdsh:
      return "{place}";
    case Engine::kSlurm:
      break;
  }
  return "$SLURMD_NODENAME";
}

std::vector<std::string> EngineCommandLine(const EngineWords& engine,
                                           const std::vector<NodeTarget>& nodes,
                                           const std::string& script) {
  std::vector<std::string> words = engine.words;
  const std::string count = std::to_string(nodes.size());
  switch (engine.engine) {
    case Engine::kOpenMpi:
      if (engine.is_root) words.emplace_back("--allow-run-as-root");
      // One agent that ends does not end the others: dslaunch decides how the job goes on. Open MPI
      // 4 and 5 have a name of their own for that, and ignore the other's.
      for (const char* name : {"orte_abort_on_non_zero_status", "prte_abort_on_non_zero_status"})
        Append(words, {"--mca", name, "0"});
      Append(words,
             {"--stdin", "none", "--bind-to", "none", "--enable-recovery", "--map-by", "seq", "-np",
              count, "--host", Joined(nodes, /*with_user=*/false), "/bin/sh", "-c", script});
      break;
    case Engine::kPdsh:
      if (!engine.knows_rcmd) Append(words, {"-R", "ssh"});
      // pdsh replaces %n by a host's number, and reads %% as %. All at once, as none ends early.
      Append(words, {"-N", "-S", "-f", count, "-w", Joined(nodes, true),
                     ForLoginShell(Substitute(Substitute(script, {{"%", "%%"}}),
                                              {{PlaceIn(engine.engine), "%n"}}))});
      break;
    case Engine::kSlurm:
      words = SrunWords(engine);
      AppendSrunComponents(engine, nodes, script, words);
      break;
  }
  return words;
}

std::optional<size_t> NodeOfPlace(Engine engine, const std::string& place,
                                  const std::vector<NodeTarget>& nodes) {
  if (engine == Engine::kSlurm) {
    const auto found = std::ranges::find(nodes, place, &NodeTarget::host);
    if (found == nodes.end()) return std::nullopt;
    return static_cast<size_t>(found - nodes.begin());
  }
  size_t number = 0;
  const auto [end, error] = std::from_chars(place.data(), place.data() + place.size(), number);
  if (error != std::errc() || end != place.data() + place.size() || number >= nodes.size())
    return std::nullopt;
  return number;
}

// "pdsh@laptop: node2: ssh exited with exit code 255"
std::optional<PdshFailure> ReadPdshFailure(std::string_view line,
                                           const std::vector<NodeTarget>& nodes) {
  if (!line.starts_with("pdsh@")) return std::nullopt;
  const size_t host = line.find(": ");
  if (host == std::string_view::npos) return std::nullopt;
  line.remove_prefix(host + 2);
  const size_t text = line.find(": ");
  if (text == std::string_view::npos ||
      line.find("exited with exit code ") == std::string_view::npos)
    return std::nullopt;
  const auto found = std::ranges::find(nodes, line.substr(0, text), &NodeTarget::host);
  if (found == nodes.end()) return std::nullopt;
  return PdshFailure{static_cast<size_t>(found - nodes.begin()),
                     std::string(line.substr(text + 2))};
}

std::string WithoutSrunRemarks(std::string_view words) {
  std::string rest;
  for (const std::string_view line : SplitLines(words)) {
    if (line != "srun: cluster configuration lacks support for cpu binding")
      rest += std::string(line) + "\n";
  }
  return rest;
}

std::string EngineTryThis(const EngineWords& engine, const NodeTarget& node) {
  std::string line;
  for (const std::string& word : engine.words) line += SanitizeForTerminal(word) + " ";
  if (engine.engine == Engine::kPdsh && !engine.knows_rcmd) line += "-R ssh ";
  return line +
         (engine.engine == Engine::kOpenMpi ? "--host "
          : engine.engine == Engine::kPdsh  ? "-w "
                                            : "--overlap -w ") +
         node.host + " true";
}

}  // namespace dslaunch
