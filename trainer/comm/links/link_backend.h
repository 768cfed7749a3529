// Provides c10d's interface to the connections between ranks.
#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "trainer/comm/links/rank_connections.h"

namespace dslaunch {

// Returns the key in the job's store under which rank `job_rank` publishes its node and endpoints
// (RankPlace::ToText).
std::string PlaceKey(size_t job_rank);

// Creates a backend for contiguous CPU tensors, with the interface and the guarantees of
// trainer/comm/shm/shm_backend.h; reductions give the same bits. Connections are made when they are
// first used. `label` is unique to the group. `job_ranks` has, for each rank of the group, its rank
// in the job. `places` is the store with PlaceKey of each rank. Errors are std::runtime_error
// "connections of the ranks: ...". A group of one rank needs neither `connections` nor `places`.
c10::intrusive_ptr<c10d::Backend> MakeLinkBackend(
    const std::shared_ptr<RankConnections>& connections, const std::string& label,
    c10::intrusive_ptr<c10d::Store> places, int rank, const std::vector<size_t>& job_ranks,
    std::chrono::milliseconds timeout);

// Returns whether `backend` was made by MakeLinkBackend and connects several hosts, some of which
// have several ranks. A collective then sends less than messages between all pairs of ranks. The
// first call waits for the places of all ranks.
bool SendsByHost(c10d::Backend& backend);

// Fills in the other ranks' parts of `flat`, [ranks * n]. Precondition: SendsByHost returns true.
// Unlike collectives, gathers are matched by `tag`, so each rank may begin gathers of different
// tags in any order.
c10::intrusive_ptr<c10d::Work> GatherByHost(c10d::Backend& backend, const at::Tensor& flat,
                                            uint64_t tag);

}  // namespace dslaunch
