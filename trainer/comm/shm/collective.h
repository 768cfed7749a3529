// What a collective operation does with each chunk of its tensors. No waiting here: chunk_flow.h
// says when each step may be done.
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

// `slots` are where each rank has this chunk, kChunkBytes each; chunks are counted from 0.
using ChunkStep = std::function<void(uint64_t chunk, std::span<std::byte* const> slots)>;

struct Collective {
  ChunkLabel label;  // the same on all ranks
  uint64_t chunks = 0;
  ChunkStep stage;    // fills this rank's slot
  ChunkStep combine;  // once all have staged: reads all slots
  ChunkStep take;     // once all have combined: reads all slots; empty where nothing is left to do
};

struct RankOfHost {
  size_t rank = 0;
  size_t ranks = 1;
};

// Tensors are contiguous, on the CPU, and stay until the collective is done. Reductions add up as
// trainer/comm/backend/combine.h says, each element on one rank, so that all ranks have the same
// bits.
Collective AllReduceChunks(RankOfHost own, const at::Tensor& tensor, c10d::ReduceOp::RedOpType op);
// `parts` is [ranks * n], `result` [n]; they may not overlap.
Collective ReduceScatterChunks(RankOfHost own, const at::Tensor& parts, const at::Tensor& result,
                               c10d::ReduceOp::RedOpType op);
Collective BroadcastChunks(RankOfHost own, const at::Tensor& tensor, size_t root);
// Each of `outputs`, by rank, is as large as `input`.
Collective AllGatherChunks(RankOfHost own, const at::Tensor& input,
                           const std::vector<at::Tensor>& outputs);
// Part r of `input`, of as many equal parts as there are ranks, goes to rank r.
Collective AllToAllChunks(RankOfHost own, const at::Tensor& input, const at::Tensor& output);
Collective BarrierChunks();

}  // namespace dslaunch
