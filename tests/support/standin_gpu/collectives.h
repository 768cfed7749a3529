// Makes collectives that behave like NCCL's, over Gloo.
#pragma once

#include <chrono>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

namespace dslaunch::standin {

// Makes a backend of a group with these properties:
// - Collectives run in the backend's own stream, after the earlier work of the caller's stream.
//   wait() makes the caller's current stream wait, not the host.
// - Messages between two ranks use one stream per pair, in order for both directions. A send
//   completes only when its receive has begun. Messages between startCoalescing and endCoalescing
//   run at the same time.
// - Connections are made by the first operation.
// - If the ranks of a group do not run the same operations in the same order, the error names both
//   ranks, and the process ends with kExitCollective.
// - If a peer is lost, the stream stops and getError() reports the loss. A process that still runs
//   10 s later ends with kExitCollective.
// - With STANDIN_HANG=1, a lost peer or a mismatch is not detected before `timeout`.
c10::intrusive_ptr<c10d::Backend> MakeBackend(const c10::intrusive_ptr<c10d::Store>& store,
                                              int rank, int size,
                                              std::chrono::milliseconds timeout);

}  // namespace dslaunch::standin
