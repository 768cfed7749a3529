// Collectives with NCCL's behaviour, over Gloo.
#pragma once

#include <chrono>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

namespace dslaunch::standin {

// - They run in the backend's own stream, after the work that the caller's stream has so far, and
//   wait() makes the caller's current stream wait, not the host.
// - Messages between two ranks use one stream per pair, in order for both directions, and a
//   send completes only when its receive has begun. Those between startCoalescing and endCoalescing
//   run at the same time.
// - Connections are made by the first operation.
// - If the ranks of a group do not run the same operations in the same order, both ranks are named,
//   and the process ends with kExitCollective.
// - If a peer is lost, the stream stops and getError() reports it. A process that still runs 10 s
//   later ends with kExitCollective.
// - With STANDIN_HANG=1 neither is noticed before `timeout`.
c10::intrusive_ptr<c10d::Backend> MakeBackend(const c10::intrusive_ptr<c10d::Store>& store,
                                              int rank, int size,
                                              std::chrono::milliseconds timeout);

}  // namespace dslaunch::standin
