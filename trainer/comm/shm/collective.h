// The steps of a collective operation for each chunk of its tensors. They do not wait: ChunkFlow
// decides when each step may run.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

#include "trainer/comm/shm/layout.h"

namespace dslaunch {

// `slots` are the ranks' slots with this chunk, kChunkBytes each; chunks are counted from 0.
using ChunkStep = std::function<void(uint64_t chunk, std::span<std::byte* const> slots)>;

struct Collective {
  ChunkLabel label;  // label, equal on all ranks
  uint64_t chunks = 0;
  ChunkStep stage;    // fills this rank's slot
  ChunkStep combine;  // runs once all ranks have staged; reads all slots
  ChunkStep take;     // runs once all ranks have combined; reads all slots; empty if not needed
};

struct RankOfHost {
  size_t rank = 0;
  size_t ranks = 1;
};

// Tensors are contiguous, on the CPU, and stay until the collective is done. Reductions use
// trainer/comm/backend/combine.h, each element on one rank, so that all ranks have the same bits.
Collective AllReduceChunks(RankOfHost own, const at::Tensor& tensor, c10d::ReduceOp::RedOpType op);
// `parts` is [ranks * n], `result` [n]; they may not overlap.
Collective ReduceScatterChunks(RankOfHost own, const at::Tensor& parts, const at::Tensor& result,
                               c10d::ReduceOp::RedOpType op);
Collective BroadcastChunks(RankOfHost own, const at::Tensor& tensor, size_t root);
// Each of `outputs`, by rank, is as large as `input`.
Collective AllGatherChunks(RankOfHost own, const at::Tensor& input,
                           const std::vector<at::Tensor>& outputs);
// Sends part r of `input`, which has an equal part for each rank, to rank r.
Collective AllToAllChunks(RankOfHost own, const at::Tensor& input, const at::Tensor& output);
Collective BarrierChunks();

}  // namespace dslaunch
