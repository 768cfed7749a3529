// Defines the steps of a collective operation for each chunk of its tensors. Steps do not wait:
// ChunkFlow decides when each step may run.
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

// Runs one step for chunk `chunk`, which counts from 0. `slots` are the slots of all ranks for this
// chunk, kChunkBytes each.
using ChunkStep = std::function<void(uint64_t chunk, std::span<std::byte* const> slots)>;

struct Collective {
  ChunkLabel label;  // must be equal on all ranks
  uint64_t chunks = 0;
  ChunkStep stage;    // fills this rank's slot
  ChunkStep combine;  // runs after all ranks have staged; reads all slots
  ChunkStep take;     // runs after all ranks have combined; reads all slots; may be empty
};

struct RankOfHost {
  size_t rank = 0;
  size_t ranks = 1;
};

// Return the steps of a collective. Tensors must be contiguous, on the CPU, and valid until the
// collective is done. Reductions use trainer/comm/backend/combine.h. Each element is reduced on one
// rank, so that all ranks get the same bits.
Collective AllReduceChunks(RankOfHost own, const at::Tensor& tensor, c10d::ReduceOp::RedOpType op);
// `parts` is [ranks * n] and `result` is [n]. They must not overlap.
Collective ReduceScatterChunks(RankOfHost own, const at::Tensor& parts, const at::Tensor& result,
                               c10d::ReduceOp::RedOpType op);
Collective BroadcastChunks(RankOfHost own, const at::Tensor& tensor, size_t root);
// `outputs` has a tensor of the size of `input` for each rank.
Collective AllGatherChunks(RankOfHost own, const at::Tensor& input,
                           const std::vector<at::Tensor>& outputs);
// Sends part r of `input`, which has an equal part for each rank, to rank r.
Collective AllToAllChunks(RankOfHost own, const at::Tensor& input, const at::Tensor& output);
Collective BarrierChunks();

}  // namespace dslaunch
