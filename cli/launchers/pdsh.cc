#include <algorithm>

#include "base/text/substitute.h"
#include "cli/launchers/start_all.h"

namespace dslaunch {
namespace {

constexpr std::string_view kPlace = "{place}";

std::vector<std::string> PdshCommand(const LauncherProgram& program,
                                     const std::vector<NodeTarget>& nodes,
                                     const std::string& script) {
  std::vector<std::string> words = program.words;
  // pdsh replaces %n by a host's index, and reads %% as %. No agent ends early, so the fan-out (-f)
  // is the number of nodes and all agents start at once.
  words.insert(words.end(), {"-N", "-S", "-f", std::to_string(nodes.size()), "-w",
                             JoinedHosts(nodes, /*with_user=*/true),
                             Substitute(Substitute(script, {{"%", "%%"}}), {{kPlace, "%n"}})});
  return words;
}

// Selects SSH unless PDSH_RCMD_TYPE selects how pdsh reaches nodes, because pdsh's default is often
// rsh.
void CompletePdsh(LauncherProgram& program, bool,
                  const std::function<const char*(const char*)>& getenv) {
  if (getenv("PDSH_RCMD_TYPE") == nullptr) program.words.insert(program.words.end(), {"-R", "ssh"});
}

// Reads a line such as "pdsh@laptop: node2: ssh exited with exit code 255". Returns nullopt for
// other lines.
std::optional<CommandFailure> ReadPdshFailure(std::string_view line,
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
  return CommandFailure{static_cast<size_t>(found - nodes.begin()),
                        std::string(line.substr(text + 2))};
}

}  // namespace

const StartAll kPdsh = {.place = kPlace,
                        .takes_user = true,
                        .runs_login_shell = true,
                        .one_node = "-w ",
                        .command = PdshCommand,
                        .complete = CompletePdsh,
                        .read_failure = ReadPdshFailure};

}  // namespace dslaunch
