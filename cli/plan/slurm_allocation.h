// The allocation of Slurm's that this process is in, as its environment says it.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace dslaunch {

// A variable's value, as getenv gives it; null: it is not set.
using GetVariable = std::function<const char*(const char*)>;

struct SlurmNode {
  std::string name;
  int tasks = 1;  // that the allocation was asked to have there
  int cores = 1;  // of the allocation
  int gpus = 0;   // of the allocation
  // All generic resources of the allocation there, as srun's --gres takes them: "gpu:4,nic:1";
  // empty: none, or not known.
  std::string gres = {};
  int component = -1;  // of a heterogeneous job; -1: the job is not one
};

struct SlurmAllocation {
  std::string job_id;
  std::vector<SlurmNode> nodes;  // in Slurm's order
  // Why the GPUs are only those that variables name, which Slurm does not set for every request;
  // empty: Slurm was asked and has answered.
  std::string gpus_unknown = "Slurm was not asked";
  // Whether this process is one of several that srun started: then each is asked to do the whole.
  bool in_step_of_many = false;
};

// The names of the allocation's nodes, in Slurm's order, of all components of a heterogeneous job.
// nullopt: in none. Pure; linear in their number. kBadInput names the variable that cannot be read.
Result<std::optional<std::vector<std::string>>> ReadSlurmNodes(const GetVariable& getenv);

// The same with all that there is to know of them.
Result<std::optional<SlurmAllocation>> ReadSlurmAllocation(const GetVariable& getenv);

// Fills in the GPUs and generic resources of the nodes, and clears gpus_unknown. `job`: what
// `scontrol show job --details` prints. Pure.
void ReadGres(std::string_view job, SlurmAllocation& allocation);

// What gets an allocation and runs dslaunch with `arguments` (argv; argv[0] is its absolute path)
// in it. `num_nodes`: where the user said it.
std::vector<std::string> SallocCommand(const std::vector<std::string>& slurm_args,
                                       std::optional<int> num_nodes,
                                       const std::vector<std::string>& arguments);

}  // namespace dslaunch
