// The Kubernetes manifest of a job: one pod for each node, each with the same command in the
// per-node style. Pure.
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
  std::string space;  // the namespace; empty: kubectl's default
  std::string image;
  int num_nodes = 0;
  std::optional<int> num_gpus;       // GPUs of each node
  int restarts = 3;                  // restarts of all pods together after a failure
  int grace_s = 60;                  // between SIGTERM and SIGKILL of a pod
  std::vector<std::string> command;  // dslaunch's own options, PROGRAM or train, and arguments
};

// Returns the manifest as YAML: a JobSet (jobset.x-k8s.io/v1alpha2), or an indexed Job (batch/v1)
// with a headless Service. It contains no secret: the token is a secret of Kubernetes, NAME-token,
// and a comment at the top has the command that creates it. kUsage: a value that Kubernetes would
// refuse.
Result<std::string> KubernetesManifest(const KubernetesJob& job);

// Takes the index of this pod in an indexed Job as the node rank of a job without SSH, if no option
// sets it.
void TakeCompletionIndex(const GetVariable& getenv, LaunchOptions& options);

}  // namespace dslaunch
