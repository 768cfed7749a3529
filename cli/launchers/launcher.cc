#include "cli/launchers/launcher.h"

#include <algorithm>

#include "cli/launchers/start_all.h"

namespace dslaunch {

const std::vector<LauncherRow>& LauncherTable() {
  static constexpr std::string_view kMustConnect =
      "the nodes must be able to connect to this machine";
  static constexpr std::string_view kEndsWithIt =
      "agents that mpirun or pdsh has started end with it; use --launcher ssh";
  static const std::vector<LauncherRow> table = {
      {.launcher = Launcher::kLocal,
       .name = "local",
       .is_choice = true,
       .way = Way::kHere,
       .reached_by = "this machine",
       .carries_environment = true},
      {.launcher = Launcher::kSsh,
       .name = "ssh",
       .is_choice = true,
       .way = Way::kSsh,
       .needs_nodes = true,
       .may_relay = true},
      {.launcher = Launcher::kPerNode,
       .name = "per_node",
       .way = Way::kOwnCommands,
       .shown_name = "a command each",
       .reached_by = "its own command",
       .carries_environment = true,
       .limits = {"no --detach: the job ends with its commands",
                  "the nodes are not reached by ps, logs and attach of another machine"}},
      {.launcher = Launcher::kExec,
       .name = "exec",
       .way = Way::kEachNode,
       .reached_by = "--exec_command",
       .needs_nodes = true,
       .limits = {"logins, host keys and what a lost program means are its own affair"}},
      {.launcher = Launcher::kSlurm,
       .name = "slurm",
       .is_choice = true,
       .way = Way::kAllAtOnce,
       .program = "srun",
       .package = "slurm-client",
       .carries_environment = true,
       .in_step = true,
       .may_relay = true,
       .no_detach = "a job of Slurm's ends with its allocation; sbatch starts one that needs no "
                    "terminal",
       .limits = {"no --detach: the job ends with its allocation",
                  "the nodes must be able to connect to this machine, as for srun"},
       .start_all = &kSrun},
      {.launcher = Launcher::kOpenMpi,
       .name = "openmpi",
       .is_choice = true,
       .way = Way::kAllAtOnce,
       .program = "mpirun",
       .package = "openmpi-bin",
       .needs_nodes = true,
       .takes_arguments = true,
       .no_detach = kEndsWithIt,
       .limits = {"no --detach: agents end with mpirun", kMustConnect,
                  "one node that mpirun does not reach ends the start of all",
                  "mpirun ends all nodes when it loses one, so no restart continues without it"},
       .start_all = &kMpirun},
      {.launcher = Launcher::kPdsh,
       .name = "pdsh",
       .is_choice = true,
       .way = Way::kAllAtOnce,
       .program = "pdsh",
       .package = "pdsh",
       .needs_nodes = true,
       .takes_arguments = true,
       .no_detach = kEndsWithIt,
       .limits = {"no --detach: agents end with pdsh", kMustConnect},
       .start_all = &kPdsh},
      {.launcher = Launcher::kPbs,
       .name = "pbs",
       .is_choice = true,
       .way = Way::kAllAtOnce,
       .program = "pbsdsh",
       .needs_nodes = true,
       .no_detach =
           "a job of PBS's ends with its allocation; qsub starts one that needs no terminal",
       .limits = {"no --detach: the job ends with its allocation", kMustConnect,
                  "pbsdsh must be Torque's; OpenPBS's does not return what programs print"},
       .start_all = &kPbs},
      {.launcher = Launcher::kLsf,
       .name = "lsf",
       .is_choice = true,
       .way = Way::kEachNode,
       .node_command = {"blaunch", "{node}", "-no-shell"},
       .reached_by = "blaunch",
       .needs_nodes = true,
       .no_detach =
           "a job of LSF's ends with its allocation; bsub starts one that needs no terminal",
       .limits = {"no --detach: the job ends with its allocation"}},
  };
  return table;
}

const LauncherRow& RowOf(Launcher launcher) {
  return LauncherTable()[static_cast<size_t>(launcher)];
}

std::string LauncherOption(Launcher launcher) {
  return "--launcher " + std::string(RowOf(launcher).name);
}

const LauncherRow* FindLauncher(std::string_view name) {
  const auto found = std::ranges::find(LauncherTable(), name, &LauncherRow::name);
  return found == LauncherTable().end() ? nullptr : &*found;
}

}  // namespace dslaunch
