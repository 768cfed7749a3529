#include "trainer/comm/shm/collective.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>

#include "trainer/comm/backend/combine.h"

namespace dslaunch {
namespace {

using Slots = std::span<std::byte* const>;

// Rounds up to whole cache lines. Parts begin at a cache line, so that two ranks never write to the
// same cache line.
constexpr size_t Aligned(size_t bytes) {
  return (bytes + kCacheLine - 1) / kCacheLine * kCacheLine;
}
constexpr size_t AlignedDown(size_t bytes) { return bytes / kCacheLine * kCacheLine; }

struct Range {
  size_t begin = 0;
  size_t end = 0;
  size_t size() const { return end - begin; }
};

// Returns the range of chunk `chunk` if `bytes` bytes are cut into chunks of `chunk_bytes`.
Range ChunkOf(size_t bytes, uint64_t chunk, size_t chunk_bytes) {
  const size_t begin = chunk * chunk_bytes;
  return {begin, std::min(begin + chunk_bytes, bytes)};
}

// Returns the range of part `part` if `bytes` bytes are cut into `parts` parts. The last parts may
// be empty.
Range PartOf(size_t bytes, size_t part, size_t parts) {
  const size_t each = Aligned((bytes + parts - 1) / parts);
  return {std::min(bytes, part * each), std::min(bytes, (part + 1) * each)};
}

uint64_t ChunksOf(size_t bytes, size_t chunk_bytes) {
  return (bytes + chunk_bytes - 1) / chunk_bytes;
}

std::byte* BytesOf(const at::Tensor& tensor) { return static_cast<std::byte*>(tensor.data_ptr()); }

at::Tensor View(std::byte* data, size_t bytes, at::ScalarType dtype) {
  return at::from_blob(data, {static_cast<int64_t>(bytes / c10::elementSize(dtype))}, dtype);
}

ChunkLabel Label(c10d::OpType kind, const at::Tensor& tensor) {
  ChunkLabel label;
  label.kind = static_cast<uint32_t>(kind);
  label.dtype = static_cast<uint32_t>(tensor.scalar_type());
  label.bytes = tensor.nbytes();
  return label;
}

}  // namespace

// Returns the steps of an all-reduce: each rank stages its chunk, reduces its own part of the chunk
// over all ranks, and reads all parts.
Collective AllReduceChunks(RankOfHost own, const at::Tensor& tensor, c10d::ReduceOp::RedOpType op) {
  const size_t bytes = tensor.nbytes();
  Collective all_reduce;
  all_reduce.label = Label(c10d::OpType::ALLREDUCE, tensor);
  all_reduce.label.reduction = static_cast<uint32_t>(op);
  all_reduce.chunks = ChunksOf(bytes, kChunkBytes);
  all_reduce.stage = [=](uint64_t chunk, Slots slots) {
    const Range range = ChunkOf(bytes, chunk, kChunkBytes);
    for (size_t rank = 0; rank < own.ranks; ++rank) {
      const Range part = PartOf(range.size(), rank, own.ranks);
      if (rank == own.rank || part.size() == 0) continue;
      std::memcpy(slots[own.rank] + part.begin, BytesOf(tensor) + range.begin + part.begin,
                  part.size());
    }
  };
  all_reduce.combine = [=](uint64_t chunk, Slots slots) {
    const Range range = ChunkOf(bytes, chunk, kChunkBytes);
    const Range part = PartOf(range.size(), own.rank, own.ranks);
    if (part.size() == 0) return;
    std::vector<at::Tensor> parts;
    for (size_t rank = 0; rank < own.ranks; ++rank) {
      std::byte* const from = rank == own.rank ? BytesOf(tensor) + range.begin : slots[rank];
      parts.push_back(View(from + part.begin, part.size(), tensor.scalar_type()));
    }
    Combine(parts, op, View(slots[own.rank] + part.begin, part.size(), tensor.scalar_type()));
  };
  all_reduce.take = [=](uint64_t chunk, Slots slots) {
    const Range range = ChunkOf(bytes, chunk, kChunkBytes);
    for (size_t rank = 0; rank < own.ranks; ++rank) {
      const Range part = PartOf(range.size(), rank, own.ranks);
      if (part.size() == 0) continue;
      std::memcpy(BytesOf(tensor) + range.begin + part.begin, slots[rank] + part.begin,
                  part.size());
    }
  };
  return all_reduce;
}

// Returns the steps of a reduce-scatter, in which a slot holds a part for every rank.
Collective ReduceScatterChunks(RankOfHost own, const at::Tensor& parts, const at::Tensor& result,
                               c10d::ReduceOp::RedOpType op) {
  const size_t bytes = result.nbytes();
  const size_t part_bytes = AlignedDown(kChunkBytes / own.ranks);
  Collective scatter;
  scatter.label = Label(c10d::OpType::_REDUCE_SCATTER_BASE, parts);
  scatter.label.reduction = static_cast<uint32_t>(op);
  scatter.chunks = ChunksOf(bytes, part_bytes);
  scatter.stage = [=](uint64_t chunk, Slots slots) {
    const Range range = ChunkOf(bytes, chunk, part_bytes);
    for (size_t rank = 0; rank < own.ranks; ++rank) {
      if (rank == own.rank) continue;
      std::memcpy(slots[own.rank] + rank * part_bytes, BytesOf(parts) + rank * bytes + range.begin,
                  range.size());
    }
  };
  scatter.combine = [=](uint64_t chunk, Slots slots) {
    const Range range = ChunkOf(bytes, chunk, part_bytes);
    std::vector<at::Tensor> all;
    for (size_t rank = 0; rank < own.ranks; ++rank) {
      std::byte* const from = rank == own.rank ? BytesOf(parts) + own.rank * bytes + range.begin
                                               : slots[rank] + own.rank * part_bytes;
      all.push_back(View(from, range.size(), parts.scalar_type()));
    }
    Combine(all, op, View(BytesOf(result) + range.begin, range.size(), result.scalar_type()));
  };
  return scatter;
}

Collective BroadcastChunks(RankOfHost own, const at::Tensor& tensor, size_t root) {
  const size_t bytes = tensor.nbytes();
  Collective broadcast;
  broadcast.label = Label(c10d::OpType::BROADCAST, tensor);
  broadcast.label.root = static_cast<uint32_t>(root);
  broadcast.chunks = ChunksOf(bytes, kChunkBytes);
  broadcast.stage = [=](uint64_t chunk, Slots slots) {
    if (own.rank != root) return;
    const Range range = ChunkOf(bytes, chunk, kChunkBytes);
    std::memcpy(slots[root], BytesOf(tensor) + range.begin, range.size());
  };
  broadcast.combine = [=](uint64_t chunk, Slots slots) {
    if (own.rank == root) return;
    const Range range = ChunkOf(bytes, chunk, kChunkBytes);
    std::memcpy(BytesOf(tensor) + range.begin, slots[root], range.size());
  };
  return broadcast;
}

Collective AllGatherChunks(RankOfHost own, const at::Tensor& input,
                           const std::vector<at::Tensor>& outputs) {
  const size_t bytes = input.nbytes();
  Collective gather;
  gather.label = Label(c10d::OpType::ALLGATHER, input);
  gather.chunks = ChunksOf(bytes, kChunkBytes);
  gather.stage = [=](uint64_t chunk, Slots slots) {
    const Range range = ChunkOf(bytes, chunk, kChunkBytes);
    std::memcpy(slots[own.rank], BytesOf(input) + range.begin, range.size());
  };
  gather.combine = [=](uint64_t chunk, Slots slots) {
    const Range range = ChunkOf(bytes, chunk, kChunkBytes);
    for (size_t rank = 0; rank < own.ranks; ++rank) {
      std::memcpy(BytesOf(outputs[rank]) + range.begin, slots[rank], range.size());
    }
  };
  return gather;
}

// Returns the steps of an all-to-all, in which a slot holds a part for every rank.
Collective AllToAllChunks(RankOfHost own, const at::Tensor& input, const at::Tensor& output) {
  const size_t bytes = input.nbytes() / own.ranks;
  const size_t part_bytes = AlignedDown(kChunkBytes / own.ranks);
  Collective exchange;
  exchange.label = Label(c10d::OpType::ALLTOALL_BASE, input);
  exchange.chunks = ChunksOf(bytes, part_bytes);
  exchange.stage = [=](uint64_t chunk, Slots slots) {
    const Range range = ChunkOf(bytes, chunk, part_bytes);
    for (size_t rank = 0; rank < own.ranks; ++rank) {
      std::memcpy(slots[own.rank] + rank * part_bytes, BytesOf(input) + rank * bytes + range.begin,
                  range.size());
    }
  };
  exchange.combine = [=](uint64_t chunk, Slots slots) {
    const Range range = ChunkOf(bytes, chunk, part_bytes);
    for (size_t rank = 0; rank < own.ranks; ++rank) {
      std::memcpy(BytesOf(output) + rank * bytes + range.begin, slots[rank] + own.rank * part_bytes,
                  range.size());
    }
  };
  return exchange;
}

Collective BarrierChunks() {
  Collective barrier;
  barrier.label.kind = static_cast<uint32_t>(c10d::OpType::BARRIER);
  barrier.chunks = 1;
  barrier.stage = barrier.combine = [](uint64_t, Slots) {};
  return barrier;
}

}  // namespace dslaunch
