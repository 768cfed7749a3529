// The command line of dslaunch manifest kubernetes.
#pragma once

#include <string>
#include <vector>

#include "base/error.h"
#include "cli/plan/kubernetes_manifest.h"

namespace dslaunch {

struct ManifestCommand {
  std::string help = {};  // text to print instead of a manifest; else empty
  KubernetesJob job = {};
};

// Parses the command line; `words` begins with "manifest", and the words after "--" are dslaunch's
// command line in each pod. Errors are kUsage, one line with a hint.
Result<ManifestCommand> ParseManifestCommand(const std::vector<std::string>& words);

}  // namespace dslaunch
