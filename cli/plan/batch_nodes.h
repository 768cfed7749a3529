// The nodes of a job of PBS, LSF or SGE, from the file or variable that mpirun reads.
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
  std::string variable;  // variable that lists the nodes: "PBS_NODEFILE"
  // Hosts and slots in the order of the list; empty if the list is unusable.
  std::vector<Host> hosts;
  std::string unusable;  // why `hosts` is empty: a fragment without the variable
};

// Parses a file with a line for each slot, which is the node's name: PBS_NODEFILE and
// LSB_DJOB_HOSTFILE. Pure. kBadInput names `source`; text without any node is an error.
Result<std::vector<Host>> ParseSlotLines(std::string_view text, const std::string& source);

// Parses a file with a line for each node, which has its name, its slots and words that are not
// used: PE_HOSTFILE. Pure. Fails like ParseSlotLines().
Result<std::vector<Host>> ParseSlotCounts(std::string_view text, const std::string& source);

// Reads a file of at most kMaxHostfileBytes; the error is a fragment.
using ReadTextAt = std::function<Result<std::string>(const std::string& path)>;

// Returns the nodes of the batch job that this process runs in. nullopt: it is in no such job, or
// is one of several processes that mpirun or dslaunch started there. Pure except for `read`.
std::optional<BatchNodes> ReadBatchNodes(const GetVariable& getenv, const ReadTextAt& read);

}  // namespace dslaunch
