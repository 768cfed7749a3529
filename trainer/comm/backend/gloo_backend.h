// Gloo behind c10d's general interface, so that gloo's headers stay in one file.
#pragma once

#include <chrono>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

namespace dslaunch {

// Joins `world_size` processes over TCP. The network interface is GLOO_SOCKET_IFNAME
// (comma-separated where there are several), else the one that this machine's host name resolves
// to, as in torch.distributed. Every collective fails after `timeout`. Where a peer dies in the
// midst of a message, only that ends it: Gloo's TCP transport tells what it has not begun to read
// or write alone. Blocks until all ranks are there or the store's time-out has passed.
c10::intrusive_ptr<c10d::Backend> MakeGlooBackend(const c10::intrusive_ptr<c10d::Store>& store,
                                                  int rank, int world_size,
                                                  std::chrono::milliseconds timeout);

}  // namespace dslaunch
