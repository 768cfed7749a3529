// Setup of the memory that the ranks of one host share.
#pragma once

#include <optional>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "base/unique_fd.h"
#include "trainer/comm/shm/segment.h"

namespace dslaunch {

struct SharedHost {
  SharedSegment segment;  // laid out for all ranks (layout.h)
  // By rank, a pidfd of each other rank's process; -1 for this one.
  std::vector<UniqueFd> processes;
};

// Collective. Returns nullopt on all ranks under the conditions of MakeShmBackend.
std::optional<SharedHost> BootstrapSharedHost(c10d::Store& store, int rank, size_t ranks);

}  // namespace dslaunch
