// Sets up the memory that the ranks of one host share.
#pragma once

#include <optional>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "base/unique_fd.h"
#include "trainer/comm/shm/segment.h"

namespace dslaunch {

struct SharedHost {
  SharedSegment segment;  // memory of all ranks with the layout of layout.h
  // Pidfd of each other rank's process, by rank; -1 for this rank.
  std::vector<UniqueFd> processes;
};

// Creates the shared memory on rank 0 and opens it on the other ranks. Returns nullopt on all ranks
// if a rank is on another host or cannot share memory (see MakeShmBackend in shm_backend.h).
// Collective.
std::optional<SharedHost> BootstrapSharedHost(c10d::Store& store, int rank, size_t ranks);

}  // namespace dslaunch
