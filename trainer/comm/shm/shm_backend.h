// Provides c10d's interface to the memory that the ranks of one host share.
#pragma once

#include <chrono>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

namespace dslaunch {

// Creates a backend for contiguous CPU tensors. Collectives must be called in the same order on all
// ranks; messages are matched by tag and order. Both run while the caller computes. A reduction
// gives the same bits on all ranks and in every run (trainer/comm/backend/combine.h). Errors are
// std::runtime_error "shared memory of the ranks: ..."; if a rank is lost, the text names it.
// `names` has, by rank, the number of each rank in error texts. Every operation fails after
// `timeout`.
//
// Returns nullptr on every rank if the ranks of the group are not all on the same host (same
// machine, same /proc and same user), if a rank cannot share memory, or if a rank has
// DSLAUNCH_SHM_DISABLE=1 in its environment. Blocks until all ranks have answered, or the store's
// timeout has passed.
c10::intrusive_ptr<c10d::Backend> MakeShmBackend(const c10::intrusive_ptr<c10d::Store>& store,
                                                 int rank, const std::vector<size_t>& names,
                                                 std::chrono::milliseconds timeout);

}  // namespace dslaunch
