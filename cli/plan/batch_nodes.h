// Reads the nodes of a job of PBS, LSF or SGE from the file or variable that mpirun reads.
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
  std::string variable;  // variable that lists the nodes, such as "PBS_NODEFILE"
  // Hosts and slots in the order of the list; empty if the list cannot be used.
  std::vector<Host> hosts;
  std::string unusable;  // reason why `hosts` is empty: a fragment without the variable's name
};

// Parses a file that has a line with the node's name for each slot: PBS_NODEFILE and
// LSB_DJOB_HOSTFILE. Returns kBadInput, which names `source`, for invalid text and for text without
// any node. Has no side effects.
Result<std::vector<Host>> ParseSlotLines(std::string_view text, const std::string& source);

// Parses PE_HOSTFILE, which has a line for each node with its name, its slots and words that are
// not used. Returns the same errors as ParseSlotLines(). Has no side effects.
Result<std::vector<Host>> ParseSlotCounts(std::string_view text, const std::string& source);

// Reads a file of at most kMaxHostfileBytes. The error is a fragment of a sentence.
using ReadTextAt = std::function<Result<std::string>(const std::string& path)>;

// Returns the nodes of the batch job in which this process runs. Returns nullopt if it does not run
// in such a job, or if it is one of several processes that mpirun or dslaunch started there.
// Accesses files only through `read`.
std::optional<BatchNodes> ReadBatchNodes(const GetVariable& getenv, const ReadTextAt& read);

}  // namespace dslaunch
