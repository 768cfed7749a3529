// Parses the command line of `dslaunch manifest kubernetes`.
#pragma once

#include <string>
#include <vector>

#include "base/error.h"
#include "cli/plan/kubernetes_manifest.h"

namespace dslaunch {

struct ManifestCommand {
  std::string help = {};  // text to print instead of a manifest; empty to print the manifest
  KubernetesJob job = {};
};

// Parses the command line. `words` begins with "manifest"; the words after "--" are the command
// line of dslaunch in each pod. Errors are kUsage, one line with a hint.
Result<ManifestCommand> ParseManifestCommand(const std::vector<std::string>& words);

}  // namespace dslaunch
