#include "cli/launchers/start_all.h"

namespace dslaunch {
namespace {

// Calls pbsdsh once for each node, because a call for all nodes cannot omit nodes of the
// allocation. -o prints the program's output. The node's /bin/sh gets the node's index as $0.
std::vector<std::string> PbsdshCommand(const LauncherProgram& program,
                                       const std::vector<NodeTarget>& nodes,
                                       const std::string& script) {
  constexpr char kLoop[] =
      "pbsdsh=$1 script=$2 index=0; shift 2\n"
      "for host do\n"
      "  \"$pbsdsh\" -o -h \"$host\" /bin/sh -c \"$script\" \"$index\" </dev/null &\n"
      "  index=$((index + 1))\n"
      "done\n"
      "wait";
  std::vector<std::string> words = {"/bin/sh", "-c", kLoop, "sh", program.words.front(), script};
  for (const NodeTarget& node : nodes) words.push_back(node.host);
  return words;
}

}  // namespace

const StartAll kPbs = {.place = "$0", .one_node = "-o -h ", .command = PbsdshCommand};

}  // namespace dslaunch
