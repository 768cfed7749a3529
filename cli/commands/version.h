// Formats the output of `dslaunch --version`.
#pragma once

#include <string>
#include <vector>

#include "cli/transport/agent_binary.h"

namespace dslaunch {

struct VersionInfo {
  std::string version;              // version of dslaunch, such as "0.2.0"
  std::string commit;               // commit from which dslaunch was built; empty outside a clone
  std::string build_id;             // build id of dslaunch in lower-case hex
  std::vector<AgentBinary> agents;  // available agents, one for each machine type
  // Version of the trainer's LibTorch, such as "2.11.0"; empty if none is found.
  std::string libtorch;
};

// The LibTorch that the trainer beside dslaunch uses.
struct LibTorch {
  std::string folder;   // path of the LibTorch; empty if no LibTorch is found
  std::string version;  // version such as "2.11.0"; empty if unknown
};

// Finds the LibTorch in the places of the trainer's run path: lib/dslaunch/libtorch of the same
// tree, then torch of the Python environment that contains dslaunch.
LibTorch FindLibTorch(const std::string& bin_folder);

// Returns kUnavailable, with a hint what to install, if dslaunch-train is not beside dslaunch, or
// if the trainer's LibTorch is missing or of the wrong version.
Result<void> CheckTrainer(const std::string& bin_folder);

// Reads the versions. `bin_folder` is the folder of the running dslaunch.
VersionInfo ReadVersionInfo(const std::string& bin_folder);

// Returns the versions as lines for people, beginning with "dslaunch VERSION", without a final
// newline.
std::string VersionText(const VersionInfo& info);

// Returns the versions as a JSON object, without a final newline.
std::string VersionJson(const VersionInfo& info);

}  // namespace dslaunch
