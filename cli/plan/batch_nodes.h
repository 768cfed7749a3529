// The nodes of a job of PBS, LSF or SGE, in the file or variable from which mpirun takes them.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "cli/plan/slurm_allocation.h"
#include "hostfiles/hostfile.h"

namespace dslaunch {

struct BatchNodes {
  std::string variable;     // by which the batch system names them: "PBS_NODEFILE"
  std::vector<Host> hosts;  // in its order, with the slots that it counts; empty: not usable
  std::string unusable;     // why there are no hosts: a fragment without the variable
};

// A line for each slot, as PBS_NODEFILE and LSB_DJOB_HOSTFILE have it: the node's name. Pure;
// kBadInput names `source`. Text without any node is an error.
Result<std::vector<Host>> ParseSlotLines(std::string_view text, const std::string& source);

// A line for each node, as PE_HOSTFILE has it: its name, its slots, and words that are not used.
// Pure; the same errors.
Result<std::vector<Host>> ParseSlotCounts(std::string_view text, const std::string& source);

// Reads a file of at most kMaxHostfileBytes; the error is a fragment.
using ReadTextAt = std::function<Result<std::string>(const std::string& path)>;

// The nodes of the job that this process runs in. nullopt: in none, or as one of several processes
// that mpirun or dslaunch has started there. Pure but for `read`.
std::optional<BatchNodes> ReadBatchNodes(const GetVariable& getenv, const ReadTextAt& read);

}  // namespace dslaunch
