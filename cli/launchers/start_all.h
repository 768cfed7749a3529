// Launchers that start one program on all nodes at once: their command lines and what they print.
// Pure.
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

// The resources that a step of Slurm requests on a node: all that the allocation has there.
struct SlurmShare {
  int component = -1;  // component of a heterogeneous job; -1 for any other job
  int gpus = 0;
  std::string gres = {};  // value of srun's --gres, GPUs included; empty if none or unknown
  bool operator==(const SlurmShare&) const = default;
};

// A launcher's program, as it is called for a job.
struct LauncherProgram {
  Launcher launcher = Launcher::kOpenMpi;
  std::vector<std::string> words;  // words[0]: the absolute path, then the user's options
  // For Slurm: the shares of all nodes of the allocation, by host, and requests of the allocation
  // (NAME=VALUE) that are hidden from srun and put back for the ranks.
  std::map<std::string, SlurmShare> shares = {};
  std::vector<std::string> request_variables = {};
};

// Ports to listen at, both ends included.
struct PortRange {
  uint16_t first = 0;  // 0: any free port
  uint16_t last = 0;
  std::string_view set_by = {};  // setting that has the range, for messages
  bool operator==(const PortRange&) const = default;
};

// A node on which the command has failed.
struct CommandFailure {
  size_t index = 0;  // index of the node
  std::string text;  // "ssh exited with exit code 255"
  bool operator==(const CommandFailure&) const = default;
};

// The differences between these launchers. A function that is nullptr has nothing to do.
struct StartAll {
  // A word of the script that the launcher replaces by the node's place: its index, or its host if
  // `place_is_host`.
  std::string_view place;
  bool place_is_host = false;
  bool takes_user = false;         // a node may be given with a user
  bool runs_login_shell = false;   // the script must be as ForLoginShell makes it
  std::string_view one_node = {};  // options that precede the host of a single node
  // Returns the arguments that run `script` on each node, by its /bin/sh.
  std::vector<std::string> (*command)(const LauncherProgram& program,
                                      const std::vector<NodeTarget>& nodes,
                                      const std::string& script);
  // Returns the arguments that run `script` on one node, with stdin and stdout of the program.
  std::vector<std::string> (*node_command)(const LauncherProgram& program, const NodeTarget& node,
                                           const std::string& script) = nullptr;
  // Adds the options that depend on this process. `getenv` is like the function of that name.
  void (*complete)(LauncherProgram& program, bool is_root,
                   const std::function<const char*(const char*)>& getenv) = nullptr;
  // Reads a line of stderr that names a failed node while the others run.
  std::optional<CommandFailure> (*read_failure)(std::string_view line,
                                                const std::vector<NodeTarget>& nodes) = nullptr;
  // Returns stderr without lines that always appear and mean nothing.
  std::string (*without_remarks)(std::string_view output) = nullptr;
  // Returns how the batch system ended the job, in its own words; empty if it did not.
  std::string (*read_cancellation)(std::string_view output) = nullptr;
  // Returns the ports of this machine to which the nodes may connect. Reads files.
  PortRange (*ports)() = nullptr;
};

// mpirun.cc, pbsdsh.cc, pdsh.cc, srun.cc. With srun a step gets the share of each node, so nodes
// with unequal shares are components of their own on its command line.
extern const StartAll kMpirun;
extern const StartAll kPbs;
extern const StartAll kPdsh;
extern const StartAll kSrun;

// Calls `complete`. Precondition: the launcher's row has `start_all`, here and below.
LauncherProgram MakeLauncherProgram(Launcher launcher, std::vector<std::string> words, bool is_root,
                                    const std::function<const char*(const char*)>& getenv);

// Fails with kUsage if the launcher cannot name one of these nodes.
Result<void> CheckLauncherNodes(Launcher launcher, const std::vector<NodeTarget>& nodes);

// Returns the node of a place; nullopt if the place is not one of these nodes.
std::optional<size_t> NodeOfPlace(Launcher launcher, const std::string& place,
                                  const std::vector<NodeTarget>& nodes);

// Returns a command line with which the user can try the same, for messages.
std::string TryThisCommand(const LauncherProgram& program, const NodeTarget& node);

// Returns "node1,bob@node2.site": hosts separated by commas, with users only if `with_user`.
std::string JoinedHosts(const std::vector<NodeTarget>& nodes, bool with_user);

}  // namespace dslaunch
