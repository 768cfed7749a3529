// The output of `dslaunch --version`.
#pragma once

#include <string>
#include <vector>

#include "cli/transport/agent_binary.h"

namespace dslaunch {

struct VersionInfo {
  std::string version;              // "0.2.0"
  std::string commit;               // commit that was built; empty outside a clone
  std::string build_id;             // build id of dslaunch in lower-case hex
  std::vector<AgentBinary> agents;  // available agents, one for each machine type
  std::string libtorch;  // version of the trainer's LibTorch, "2.11.0"; empty if there is none
};

// The LibTorch used by the trainer beside dslaunch.
struct LibTorch {
  std::string folder;   // empty if there is none
  std::string version;  // "2.11.0"; empty if unknown
};

// Looks where the trainer's run path does: lib/dslaunch/libtorch of the same tree, else torch of
// the Python environment that contains dslaunch.
LibTorch FindLibTorch(const std::string& bin_folder);

// Returns kUnavailable, with what to install, if dslaunch-train is not beside dslaunch, or its
// LibTorch is missing or not the version it was built for.
Result<void> CheckTrainer(const std::string& bin_folder);

// `bin_folder` is the folder of the running dslaunch.
VersionInfo ReadVersionInfo(const std::string& bin_folder);

// Return lines for people, of which the first is "dslaunch VERSION", and one JSON object, both
// without a final newline.
std::string VersionText(const VersionInfo& info);
std::string VersionJson(const VersionInfo& info);

}  // namespace dslaunch
