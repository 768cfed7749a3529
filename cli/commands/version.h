// What `dslaunch --version` prints of this installation.
#pragma once

#include <string>
#include <vector>

#include "cli/transport/agent_binary.h"

namespace dslaunch {

struct VersionInfo {
  std::string version;              // "0.2.0"
  std::string commit;               // that it was built from; empty: from no clone
  std::string build_id;             // dslaunch's, lower-case hex
  std::vector<AgentBinary> agents;  // those at hand, each for nodes of its machine
  std::string libtorch;             // "2.11.0" that the trainer takes; empty: there is none
};

// The LibTorch that the trainer beside dslaunch takes.
struct LibTorch {
  std::string folder;   // empty: there is none
  std::string version;  // "2.11.0"; empty: it does not say
};

// Where the trainer's run path looks: lib/dslaunch/libtorch of the same tree, else torch of the
// Python environment that dslaunch is installed in.
LibTorch FindLibTorch(const std::string& bin_folder);

// kUnavailable, with what to install, if dslaunch-train is not beside dslaunch, or has no LibTorch
// or another version than the one that it is built for.
Result<void> CheckTrainer(const std::string& bin_folder);

// `bin_folder` is that of the running dslaunch.
VersionInfo ReadVersionInfo(const std::string& bin_folder);

// Lines for people, of which the first is "dslaunch VERSION", and one JSON object. Without the last
// newline.
std::string VersionText(const VersionInfo& info);
std::string VersionJson(const VersionInfo& info);

}  // namespace dslaunch
