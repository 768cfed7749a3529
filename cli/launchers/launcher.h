// Defines the launchers, which are the ways to start the agents of a job. Other folders use a
// launcher only through its row in LauncherTable.
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
  kHere,         // this process starts all agents, which are on this machine
  kSsh,          // agents are started over SSH, with a connection for each node
  kOwnCommands,  // the user starts a command on each node
  // One process of a program for each node, connected to the node by its stdin and stdout.
  kEachNode,
  kAllAtOnce,  // one process of `program` for all nodes; the agents call back (cli/call_back)
};

struct LauncherRow {
  Launcher launcher = Launcher::kLocal;
  std::string_view name;   // name in job records and JSON, and for --launcher if `is_choice`
  bool is_choice = false;  // whether --launcher accepts the name
  Way way = Way::kHere;
  std::string_view program = {};  // name of the launcher's program in PATH, for kAllAtOnce
  // Words that run a command on {node}, for kEachNode.
  std::vector<std::string_view> node_command = {};
  std::string_view package = {};  // Debian package of the program; empty if there is none
  // Text shown to users instead of the launcher's name; empty to show the name.
  std::string_view shown_name = {};
  // Text shown to users instead of a node's address; empty to show the address.
  std::string_view reached_by = {};
  bool needs_nodes = false;      // whether a hostfile or a batch system's list of nodes is needed
  bool takes_arguments = false;  // whether --launcher_args is accepted and passed to `program`
  // True if the programs on the nodes have this process's environment.
  bool carries_environment = false;
  bool in_step = false;    // whether agents run in a step whose end signals all its processes
  bool may_relay = false;  // whether --fanout is supported, by which some nodes reach other nodes
  std::string_view no_detach = {};  // reason why --detach is refused; empty if it is accepted
  std::vector<std::string_view> limits = {};  // sentences for users without a full stop
  const StartAll* start_all = nullptr;        // functions of the launcher; set for kAllAtOnce only
};

// Returns the rows, in the order of Launcher.
const std::vector<LauncherRow>& LauncherTable();

const LauncherRow& RowOf(Launcher launcher);

// Returns the option that selects the launcher, "--launcher NAME".
std::string LauncherOption(Launcher launcher);

// Returns the row of the launcher with this name; nullptr if no launcher has it.
const LauncherRow* FindLauncher(std::string_view name);

}  // namespace dslaunch
