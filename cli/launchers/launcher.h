// The launchers: the ways in which the agents of a job are started. LauncherTable has a row for
// each, which is all that the other folders know of it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace dslaunch {

struct StartAll;

enum class Launcher {
  kLocal,
  kSsh,
  kPerNode,  // set by LaunchOptions::per_node, not by --launcher
  kExec,     // set by LaunchOptions::exec_command, not by --launcher
  kSlurm,
  kOpenMpi,
  kPdsh,
  kPbs,
  kLsf,
};

enum class Way {
  kHere,         // this process starts all agents, on this machine
  kSsh,          // over SSH, a connection for each node
  kOwnCommands,  // a command of the user's on each node
  kEachNode,     // a process of some program for each node, whose stdin and stdout lead there
  kAllAtOnce,    // one process of `program` for all nodes; the agents call back (cli/call_back)
};

struct LauncherRow {
  Launcher launcher = Launcher::kLocal;
  std::string_view name;   // in job records and JSON, and for --launcher if `is_choice`
  bool is_choice = false;  // a value of --launcher
  Way way = Way::kHere;
  std::string_view program = {};  // name in PATH of a kAllAtOnce launcher's program
  std::vector<std::string_view> node_command =
      {};                         // words that run a command on {node}, for kEachNode
  std::string_view package = {};  // Debian package of the program; empty if there is none
  // Shown to users instead of the name or of a node's address; empty: those are shown.
  std::string_view shown_name = {};
  std::string_view reached_by = {};
  bool needs_nodes = false;          // it needs a hostfile or a batch system's list of nodes
  bool takes_arguments = false;      // --launcher_args is for `program`
  bool carries_environment = false;  // the nodes' programs have this process's environment
  bool in_step = false;              // agents are in a step, whose end signals all its processes
  bool may_relay = false;            // --fanout: some nodes reach the others
  std::string_view no_detach = {};   // reason for refusing --detach; empty if it is accepted
  std::vector<std::string_view> limits = {};  // sentences without a full stop, for users
  const StartAll* start_all = nullptr;        // set for kAllAtOnce only
};

// Returns the rows in the order of Launcher.
const std::vector<LauncherRow>& LauncherTable();

const LauncherRow& RowOf(Launcher launcher);

// Returns "--launcher NAME".
std::string LauncherOption(Launcher launcher);

// Returns nullptr if no launcher has this name.
const LauncherRow* FindLauncher(std::string_view name);

}  // namespace dslaunch
