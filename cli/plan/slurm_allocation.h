// The allocation of Slurm's that this process is in, as its environment says it.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"

namespace dslaunch {

// A variable's value, as getenv gives it; null: it is not set.
using GetVariable = std::function<const char*(const char*)>;

struct SlurmNode {
  std::string name;
  int tasks = 1;  // that the allocation was asked to have there
  int cores = 1;  // of the allocation
};

struct SlurmAllocation {
  std::string job_id;
  std::vector<SlurmNode> nodes;  // in Slurm's order
  int gpus_per_node = 0;         // 0: it has none, or does not say so
  // Whether this process is one of several that srun started: then each is asked to do the whole.
  bool in_step_of_many = false;
};

// The names of the allocation's nodes, in Slurm's order. nullopt: in none. Pure; linear in their
// number. kBadInput names the variable that cannot be read.
Result<std::optional<std::vector<std::string>>> ReadSlurmNodes(const GetVariable& getenv);

// The same with all that there is to know of them.
Result<std::optional<SlurmAllocation>> ReadSlurmAllocation(const GetVariable& getenv);

// The program that starts agents on nodes of that allocation.
std::vector<std::string> SrunCommand(const std::string& job_id);

// What gets an allocation and runs dslaunch with `arguments` (argv; argv[0] is its absolute path)
// in it. `num_nodes`: where the user said it.
std::vector<std::string> SallocCommand(const std::vector<std::string>& slurm_args,
                                       std::optional<int> num_nodes,
                                       const std::vector<std::string>& arguments);

}  // namespace dslaunch
