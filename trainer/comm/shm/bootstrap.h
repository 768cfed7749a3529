// How the ranks of one host come to share memory.
#pragma once

#include <optional>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "base/unique_fd.h"
#include "trainer/comm/shm/segment.h"

namespace dslaunch {

struct SharedHost {
  SharedSegment segment;  // laid out for all ranks (layout.h)
  // A pidfd of each other rank's process, by rank; -1 of this one's.
  std::vector<UniqueFd> processes;
};

// nullopt on all ranks, where shm_backend.h says so.
std::optional<SharedHost> BootstrapSharedHost(c10d::Store& store, int rank, size_t ranks);

}  // namespace dslaunch
