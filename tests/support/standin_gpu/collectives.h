// Collectives with NCCL's behaviour, over Gloo.
#pragma once

#include <chrono>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

namespace dslaunch::standin {

// - They run in a stream of the backend's own, after what the caller's stream has done so far, and
//   wait() makes the caller's current stream wait, not the host.
// - Messages between two ranks have a stream for each pair, in one row for both directions, and a
//   send is over only when its receive has begun. Those between startCoalescing and endCoalescing
//   run at the same time.
// - Connections are made with the first operation.
// - Where the ranks of a group do not run the same, in the same order, both are named, and the
//   process ends with kExitCollective.
// - Where a peer is lost, the stream gets on no more and getError() tells it. A process that is
// still
//   there 10 s later ends with kExitCollective.
// - With STANDIN_HANG=1 neither is noticed before `timeout`.
c10::intrusive_ptr<c10d::Backend> MakeBackend(const c10::intrusive_ptr<c10d::Store>& store,
                                              int rank, int size,
                                              std::chrono::milliseconds timeout);

}  // namespace dslaunch::standin
