// What Kubernetes needs to run a job of dslaunch's: one pod for each node, each with the same
// command in the per-node style. Pure.
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
  std::string space;  // the namespace; empty: kubectl's
  std::string image;
  int num_nodes = 0;
  std::optional<int> num_gpus;       // of each node
  int restarts = 3;                  // of all pods together, after one has failed
  int grace_s = 60;                  // between SIGTERM and SIGKILL of a pod
  std::vector<std::string> command;  // dslaunch's own options, PROGRAM or train, and arguments
};

// The manifest as YAML: a JobSet (jobset.x-k8s.io/v1alpha2), or an indexed Job (batch/v1) with a
// headless Service. It has no secret: the token is one of Kubernetes, NAME-token, which a comment
// at its top says how to make. kUsage: a value that Kubernetes would refuse.
Result<std::string> KubernetesManifest(const KubernetesJob& job);

// Kubernetes numbers the pods of an indexed Job: that is the node rank of a job without SSH, where
// nothing else says it.
void TakeCompletionIndex(const GetVariable& getenv, LaunchOptions& options);

}  // namespace dslaunch
