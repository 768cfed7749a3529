// Prints the Kubernetes manifest of a job: one pod for each node, all with the same command in the
// per-node style. All functions are pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "cli/plan/slurm_allocation.h"
#include "cli/request/launch_options.h"

namespace dslaunch {

struct KubernetesJob {
  enum class Kind { kJobSet, kJob };
  Kind kind = Kind::kJobSet;
  std::string name = "dslaunch";
  std::string space;  // the namespace; empty for kubectl's default
  std::string image;
  int num_nodes = 0;
  std::optional<int> num_gpus;       // number of GPUs of each node
  int restarts = 3;                  // number of restarts of all pods together after a failure
  int grace_s = 60;                  // seconds between SIGTERM and SIGKILL of a pod
  std::vector<std::string> command;  // dslaunch's options, then PROGRAM or train, with arguments
};

// Returns the manifest as YAML: a JobSet (jobset.x-k8s.io/v1alpha2), or an indexed Job (batch/v1)
// with a headless Service. The manifest contains no secret: the token is a Kubernetes secret,
// NAME-token, and a comment at the top has the command that creates it. Returns kUsage for a value
// that Kubernetes would refuse.
Result<std::string> KubernetesManifest(const KubernetesJob& job);

// Uses the index of this pod in an indexed Job as the node rank of a job without SSH, if no option
// sets the node rank.
void TakeCompletionIndex(const GetVariable& getenv, LaunchOptions& options);

}  // namespace dslaunch
