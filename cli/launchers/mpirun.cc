#include "cli/launchers/start_all.h"

namespace dslaunch {
namespace {

std::vector<std::string> MpirunCommand(const LauncherProgram& program,
                                       const std::vector<NodeTarget>& nodes,
                                       const std::string& script) {
  std::vector<std::string> words = program.words;
  // dslaunch decides how the job continues, so an agent that ends must not end the other agents.
  // Open MPI 4 and 5 have different names for this setting, and each ignores the name of the other.
  for (const char* name : {"orte_abort_on_non_zero_status", "prte_abort_on_non_zero_status"})
    words.insert(words.end(), {"--mca", name, "0"});
  words.insert(words.end(), {"--stdin", "none", "--bind-to", "none", "--enable-recovery",
                             "--map-by", "seq", "-np", std::to_string(nodes.size()), "--host",
                             JoinedHosts(nodes, /*with_user=*/false), "/bin/sh", "-c", script});
  return words;
}

// Adds the option without which mpirun refuses to run as root.
void CompleteMpirun(LauncherProgram& program, bool is_root,
                    const std::function<const char*(const char*)>&) {
  if (is_root) program.words.emplace_back("--allow-run-as-root");
}

}  // namespace

const StartAll kMpirun = {.place = "$OMPI_COMM_WORLD_RANK",
                          .one_node = "--host ",
                          .command = MpirunCommand,
                          .complete = CompleteMpirun};

}  // namespace dslaunch
