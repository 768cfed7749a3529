// c10d's interface to the connections between ranks.
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

// The key under which rank `job_rank` says where it is (RankPlace::ToText), in the store of the
// job.
std::string PlaceKey(size_t job_rank);

// For CPU tensors that are contiguous, with the interface and the promises of
// trainer/comm/shm/shm_backend.h: the same bits come out of a reduction as there. Connections are
// made when they are first used. `label` is the group's own; `job_ranks` has, for each rank of the
// group, its rank in the job; `places` is the store with PlaceKey of each. What happens on the way
// is std::runtime_error "connections of the ranks: ...".
// A group of one rank needs neither `connections` nor `places`.
c10::intrusive_ptr<c10d::Backend> MakeLinkBackend(
    const std::shared_ptr<RankConnections>& connections, const std::string& label,
    c10::intrusive_ptr<c10d::Store> places, int rank, const std::vector<size_t>& job_ranks,
    std::chrono::milliseconds timeout);

// Whether `backend` is of these, and its ranks are on several hosts of which some have several:
// then a collective sends less than messages between all ranks. The first call waits for all
// places.
bool SendsByHost(c10d::Backend& backend);

// Fills the other ranks' parts of `flat` [ranks * n], where SendsByHost. Unlike a collective it is
// matched by `tag`, so gathers of several tags may be begun in any order on each rank.
c10::intrusive_ptr<c10d::Work> GatherByHost(c10d::Backend& backend, const at::Tensor& flat,
                                            uint64_t tag);

}  // namespace dslaunch
