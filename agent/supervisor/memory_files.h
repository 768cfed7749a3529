// Creates memory for copies of the ranks' states (proto/contract/worker_env.h, kMemoryFdsVariable).
// The supervisor outlives the ranks of each attempt, so it owns the memory. The memory is freed
// with the last process that has it open, even if processes are killed.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <utility>

#include "base/unique_fd.h"

namespace dslaunch {

// Owns the files of all local ranks. Only processes that inherit the descriptors can open the
// files, and other processes of the same user through /proc. A file cannot shrink, so a rank cannot
// make a reader fail. Single-threaded.
class MemoryFiles {
 public:
  // Returns the descriptors of the two files of a local rank, which the first call creates as empty
  // files. Returns nullopt with errno set if they cannot be created.
  std::optional<std::pair<int, int>> Of(uint32_t local_rank);

 private:
  std::map<uint32_t, std::pair<UniqueFd, UniqueFd>> files_;
};

}  // namespace dslaunch
