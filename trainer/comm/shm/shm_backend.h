// c10d's interface to the memory that the ranks of one host share.
#pragma once

#include <chrono>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

namespace dslaunch {

// For CPU tensors that are contiguous. Collectives must be called in the same order on all ranks,
// messages are matched by tag and order; all go on while the caller computes. The same bits come
// out of a reduction on all ranks and in every run (trainer/comm/backend/combine.h). What happens
// on the way is std::runtime_error "shared memory of the ranks: ...", also where a rank is lost,
// which it names. `names` are what the ranks are called in messages, by rank; every operation fails
// after `timeout`.
//
// nullptr on every rank where not all ranks of the group are on one host (a machine, a /proc and a
// user), where one of them may not share memory, or where one has DSLAUNCH_SHM_DISABLE=1 in its
// environment. Blocks until all ranks have said so, or the store's time-out has passed.
c10::intrusive_ptr<c10d::Backend> MakeShmBackend(const c10::intrusive_ptr<c10d::Store>& store,
                                                 int rank, const std::vector<size_t>& names,
                                                 std::chrono::milliseconds timeout);

}  // namespace dslaunch
