// Reads the Slurm allocation of this process from its environment.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace dslaunch {

// Returns the value of a variable, or null if it is not set, like getenv.
using GetVariable = std::function<const char*(const char*)>;

struct SlurmNode {
  std::string name;
  int tasks = 1;  // number of requested tasks on the node
  int cores = 1;  // number of cores of the allocation on the node
  int gpus = 0;   // number of GPUs of the allocation on the node
  // All generic resources of the allocation on the node in the form of srun's --gres, such as
  // "gpu:4,nic:1"; empty if there are none, or if they are not known.
  std::string gres = {};
  int component = -1;  // index in a heterogeneous job; -1 for any other job
};

struct SlurmAllocation {
  std::string job_id;
  std::vector<SlurmNode> nodes;  // nodes in the order in which Slurm lists them
  // Reason why `gpus` counts only GPUs that variables name, which Slurm does not set for every
  // request. Empty if `gpus` comes from Slurm's answer.
  std::string gpus_unknown = "Slurm was not asked";
  // True if this process is one of several that srun started, each with the same command.
  bool in_step_of_many = false;
};

// Returns the names of the allocation's nodes, in Slurm's order, including all components of a
// heterogeneous job. Returns nullopt if this process is in no allocation. Takes time linear in the
// number of nodes. Fails with kBadInput, naming the variable, if a variable cannot be read. Has no
// side effects.
Result<std::optional<std::vector<std::string>>> ReadSlurmNodes(const GetVariable& getenv);

// Returns the allocation as far as the variables describe it. Returns nullopt and errors as
// ReadSlurmNodes() does.
Result<std::optional<SlurmAllocation>> ReadSlurmAllocation(const GetVariable& getenv);

// Sets the GPUs and generic resources of the nodes, and clears gpus_unknown. `job` is the output of
// `scontrol show job --details`. Performs no I/O.
void ReadGres(std::string_view job, SlurmAllocation& allocation);

// Returns the command that requests an allocation and runs dslaunch in it. `arguments` are the argv
// of dslaunch; argv[0] is its absolute path. `num_nodes` is nullopt if the user did not give it.
std::vector<std::string> SallocCommand(const std::vector<std::string>& slurm_args,
                                       std::optional<int> num_nodes,
                                       const std::vector<std::string>& arguments);

}  // namespace dslaunch
