// The Slurm allocation of this process, read from its environment.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace dslaunch {

// Returns a variable's value, or null if it is not set; see getenv.
using GetVariable = std::function<const char*(const char*)>;

struct SlurmNode {
  std::string name;
  int tasks = 1;  // requested tasks on the node
  int cores = 1;  // cores of the allocation on the node
  int gpus = 0;   // GPUs of the allocation on the node
  // All generic resources of the allocation on the node in the form of srun's --gres:
  // "gpu:4,nic:1"; empty: none, or not known.
  std::string gres = {};
  int component = -1;  // component of a heterogeneous job; -1 for any other job
};

struct SlurmAllocation {
  std::string job_id;
  std::vector<SlurmNode> nodes;  // in Slurm's order
  // Why `gpus` has only what variables name, which Slurm does not set for every request; empty:
  // Slurm was asked and answered.
  std::string gpus_unknown = "Slurm was not asked";
  // Whether this process is one of several that srun started, each with the same command.
  bool in_step_of_many = false;
};

// Returns the names of the allocation's nodes, in Slurm's order, including all components of a
// heterogeneous job. nullopt: this process is in no allocation. Pure; linear in the number of
// nodes. kBadInput names the variable that cannot be read.
Result<std::optional<std::vector<std::string>>> ReadSlurmNodes(const GetVariable& getenv);

// Returns the allocation as far as the variables describe it. Otherwise like ReadSlurmNodes().
Result<std::optional<SlurmAllocation>> ReadSlurmAllocation(const GetVariable& getenv);

// Fills in the GPUs and generic resources of the nodes, and clears gpus_unknown. `job`: what
// `scontrol show job --details` prints. Pure.
void ReadGres(std::string_view job, SlurmAllocation& allocation);

// Returns the command that gets an allocation and runs dslaunch with `arguments` (argv; argv[0] is
// its absolute path) in it. `num_nodes`: nullopt if the user did not give it.
std::vector<std::string> SallocCommand(const std::vector<std::string>& slurm_args,
                                       std::optional<int> num_nodes,
                                       const std::vector<std::string>& arguments);

}  // namespace dslaunch
