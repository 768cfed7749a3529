// Defines the steps of a collective operation for each chunk of its tensors. No step waits:
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
  ChunkLabel label;  // description of the collective, equal on all ranks
  uint64_t chunks = 0;
  ChunkStep stage;    // copies this rank's data into its slot
  ChunkStep combine;  // runs after all ranks have staged; reads all slots
  ChunkStep take;     // runs after all ranks have combined; reads all slots; may be empty
};

struct RankOfHost {
  size_t rank = 0;
  size_t ranks = 1;
};

// Returns the steps of a collective. Tensors must be contiguous, on the CPU, and valid until the
// collective is done. Reductions use trainer/comm/backend/combine.h. Each element is reduced on one
// rank, so that all ranks get the same bits.
Collective AllReduceChunks(RankOfHost own, const at::Tensor& tensor, c10d::ReduceOp::RedOpType op);
// Returns the steps of a reduce-scatter of `parts`, [ranks * n], into `result`, [n]. They must not
// overlap.
Collective ReduceScatterChunks(RankOfHost own, const at::Tensor& parts, const at::Tensor& result,
                               c10d::ReduceOp::RedOpType op);
Collective BroadcastChunks(RankOfHost own, const at::Tensor& tensor, size_t root);
// Returns the steps of an all-gather; `outputs` has a tensor of the size of `input` for each rank.
Collective AllGatherChunks(RankOfHost own, const at::Tensor& input,
                           const std::vector<at::Tensor>& outputs);
// Returns the steps of an all-to-all, which sends part r of `input` to rank r. `input` has an equal
// part for each rank.
Collective AllToAllChunks(RankOfHost own, const at::Tensor& input, const at::Tensor& output);
Collective BarrierChunks();

}  // namespace dslaunch
