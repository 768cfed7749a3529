// Memory for copies of the ranks' states (proto/contract/worker_env.h, kMemoryFdsVariable). The
// supervisor holds it, because it outlives the ranks of each attempt, and the memory is freed with
// the last process that holds it, whichever is killed.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <utility>

#include "base/unique_fd.h"

namespace dslaunch {

// Single-threaded. Only the processes that inherit the descriptors can open the files, and others
// of the same user by /proc. A file cannot shrink, so a rank cannot make a reader fail.
class MemoryFiles {
 public:
  // Returns the two files of a local rank, which the first call creates, empty. nullopt with errno
  // set if they cannot be created.
  std::optional<std::pair<int, int>> Of(uint32_t local_rank);

 private:
  std::map<uint32_t, std::pair<UniqueFd, UniqueFd>> files_;
};

}  // namespace dslaunch
