// Describes launchers that start a program on all nodes at once: their command lines and their
// output. All functions are pure, except StartAll::ports.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "cli/launchers/launcher.h"
#include "hostfiles/node_target.h"

namespace dslaunch {

// The resources that a step of Slurm requests on a node, which are all that the allocation has
// there.
struct SlurmShare {
  int component = -1;  // index in a heterogeneous job; -1 for any other job
  int gpus = 0;
  std::string gres = {};  // value of srun's --gres, including GPUs; empty if none or unknown
  bool operator==(const SlurmShare&) const = default;
};

// A launcher's program as it is called for a job.
struct LauncherProgram {
  Launcher launcher = Launcher::kOpenMpi;
  std::vector<std::string> words;  // absolute path of the program, then the user's options
  // For Slurm: the shares of all nodes of the allocation, by host.
  std::map<std::string, SlurmShare> shares = {};
  // For Slurm: requests of the allocation (NAME=VALUE) that are hidden from srun and restored for
  // the ranks.
  std::vector<std::string> request_variables = {};
};

// A range of ports to listen on, including both ends.
struct PortRange {
  uint16_t first = 0;  // first port; 0 for any free port
  uint16_t last = 0;
  std::string_view set_by = {};  // name of the setting that defines the range, for messages
  bool operator==(const PortRange&) const = default;
};

// A failure of the command on a node.
struct CommandFailure {
  size_t index = 0;  // index in the list of nodes
  std::string text;  // text such as "ssh exited with exit code 255"
  bool operator==(const CommandFailure&) const = default;
};

// The properties of a launcher that starts a program on all nodes at once. A launcher does not need
// the functions that are nullptr.
struct StartAll {
  // The word of the script that the launcher replaces by the node's place, which is the node's
  // index, or its host if `place_is_host`.
  std::string_view place;
  bool place_is_host = false;
  bool takes_user = false;         // whether the launcher accepts a user for a node
  bool runs_login_shell = false;   // whether the script must be quoted by ForLoginShell
  std::string_view one_node = {};  // options that precede the host of a single node
  // Returns the arguments that run `script` on each node by the node's /bin/sh.
  std::vector<std::string> (*command)(const LauncherProgram& program,
                                      const std::vector<NodeTarget>& nodes,
                                      const std::string& script);
  // Returns the arguments that run `script` on a node, connected to the program's stdin and stdout.
  std::vector<std::string> (*node_command)(const LauncherProgram& program, const NodeTarget& node,
                                           const std::string& script) = nullptr;
  // Adds the options that depend on this process. `getenv` behaves like the function of that name.
  void (*complete)(LauncherProgram& program, bool is_root,
                   const std::function<const char*(const char*)>& getenv) = nullptr;
  // Reads a line of stderr that names a failed node while the other nodes run.
  std::optional<CommandFailure> (*read_failure)(std::string_view line,
                                                const std::vector<NodeTarget>& nodes) = nullptr;
  // Returns stderr without lines that always appear and have no meaning.
  std::string (*without_remarks)(std::string_view output) = nullptr;
  // Returns the description by the batch system of how it ended the job; empty if it did not end
  // the job.
  std::string (*read_cancellation)(std::string_view output) = nullptr;
  // Returns the ports of this machine to which the nodes may connect. Reads files.
  PortRange (*ports)() = nullptr;
};

// The launchers of this kind, defined in mpirun.cc, pbsdsh.cc, pdsh.cc and srun.cc. With srun, a
// step gets the share of each node, so nodes with unequal shares are separate components on its
// command line.
extern const StartAll kMpirun;
extern const StartAll kPbs;
extern const StartAll kPdsh;
extern const StartAll kSrun;

// Returns the launcher's program after adding options with `complete`. Precondition of this
// function and those below: the launcher's row has `start_all`.
LauncherProgram MakeLauncherProgram(Launcher launcher, std::vector<std::string> words, bool is_root,
                                    const std::function<const char*(const char*)>& getenv);

// Returns kUsage if the launcher cannot name one of these nodes.
Result<void> CheckLauncherNodes(Launcher launcher, const std::vector<NodeTarget>& nodes);

// Returns the index of the node at a place; nullopt if the place is not one of these nodes.
std::optional<size_t> NodeOfPlace(Launcher launcher, const std::string& place,
                                  const std::vector<NodeTarget>& nodes);

// Returns a command line with which the user can reproduce the start on a node, for messages.
std::string TryThisCommand(const LauncherProgram& program, const NodeTarget& node);

// Returns the hosts separated by commas, with users only if `with_user`: "node1,bob@node2.site".
std::string JoinedHosts(const std::vector<NodeTarget>& nodes, bool with_user);

}  // namespace dslaunch
