// Provides Gloo through c10d's general interface, so that only one file includes Gloo's headers.
#pragma once

#include <chrono>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

namespace dslaunch {

// Connects `world_size` processes over TCP and returns the backend. Uses the network interfaces in
// GLOO_SOCKET_IFNAME (comma-separated) if the variable is set. Otherwise uses the interface of the
// address to which this machine's host name resolves, like torch.distributed. Every collective
// fails after `timeout`. If a peer dies while a message is transferred, this rank waits until that
// timeout, because Gloo's TCP transport fails only operations that have not begun. Blocks until all
// ranks have connected or the store's timeout has passed.
c10::intrusive_ptr<c10d::Backend> MakeGlooBackend(const c10::intrusive_ptr<c10d::Store>& store,
                                                  int rank, int world_size,
                                                  std::chrono::milliseconds timeout);

}  // namespace dslaunch
