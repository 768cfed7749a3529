#include "cli/launchers/start_all.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <set>
#include <utility>

#include "base/text/sanitize.h"

namespace dslaunch {
namespace {

const StartAll& StartOf(Launcher launcher) { return *RowOf(launcher).start_all; }

// Returns whether the name of a host has only characters that all of these launchers accept.
bool IsPlainHost(const std::string& host) {
  return !host.empty() && host.front() != '-' && std::ranges::all_of(host, [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '.' || c == '-' || c == '_';
  });
}

}  // namespace

LauncherProgram MakeLauncherProgram(Launcher launcher, std::vector<std::string> words, bool is_root,
                                    const std::function<const char*(const char*)>& getenv) {
  LauncherProgram program{launcher, std::move(words)};
  if (StartOf(launcher).complete != nullptr) StartOf(launcher).complete(program, is_root, getenv);
  return program;
}

Result<void> CheckLauncherNodes(Launcher launcher, const std::vector<NodeTarget>& nodes) {
  const auto refused = [&](const std::string& why) {
    return Error{ExitCode::kUsage, LauncherOption(launcher) + ": " + why};
  };
  std::set<std::string> hosts;
  for (const NodeTarget& node : nodes) {
    if (!IsPlainHost(node.host)) {
      return refused(Truncate(node.host) +
                     " cannot be given to it as a host; use a name of letters, digits, '.', '-' "
                     "and '_'");
    }
    if (node.port != 0) {
      return refused(node.name + " has port " + std::to_string(node.port) +
                     ", which it cannot be given; set it in ssh_config");
    }
    if (!node.user.empty() && (!StartOf(launcher).takes_user || !IsPlainHost(node.user))) {
      return refused(node.name + " has user " + Truncate(node.user) +
                     ", which it cannot be given; set it in ssh_config");
    }
    if (!hosts.insert(node.host).second) {
      return refused(Truncate(node.host) +
                     " is the host of two nodes, and it starts one program on each host; leave "
                     "one of them out");
    }
  }
  return {};
}

std::optional<size_t> NodeOfPlace(Launcher launcher, const std::string& place,
                                  const std::vector<NodeTarget>& nodes) {
  if (StartOf(launcher).place_is_host) {
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

std::string TryThisCommand(const LauncherProgram& program, const NodeTarget& node) {
  std::string line;
  for (const std::string& word : program.words) line += SanitizeForTerminal(word) + " ";
  return line.append(StartOf(program.launcher).one_node) + node.host + " true";
}

std::string JoinedHosts(const std::vector<NodeTarget>& nodes, bool with_user) {
  std::string list;
  for (const NodeTarget& node : nodes) {
    list += list.empty() ? "" : ",";
    if (with_user && !node.user.empty()) list += node.user + "@";
    list += node.host;
  }
  return list;
}

}  // namespace dslaunch
