// Divides tensors into blocks of n dimensions, given as shards. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "dslaunch/shard.h"

namespace dslaunch {

// The elements at [offsets[d], offsets[d] + sizes[d]) of each dimension d, stored in row-major
// order.
struct TensorBlock {
  std::vector<int64_t> offsets;
  std::vector<int64_t> sizes;
};

struct BlockSlice {
  Shard shard;
  size_t block = 0;      // index of the block that has the elements
  int64_t in_block = 0;  // position of the first element, counted from the block's first
};

inline constexpr size_t kMaxBlockSlices = 1'000'000;

// Cuts the blocks of a tensor into slices that have each element of the tensor once, in the order
// and with the single pitch that TensorRecord requires. A block is one slice if the blocks form a
// grid with cuts in at most two dimensions; else it is divided into rows. Blocks without elements
// are skipped. The blocks are not trusted. Returns a sentence without subject if they do not fit
// into `shape`, leave a hole, overlap, or need more than kMaxBlockSlices slices.
struct BlockSlices {
  std::vector<BlockSlice> slices;
  std::string problem;  // empty if there is none
};
BlockSlices SlicesOf(const std::vector<int64_t>& shape, const std::vector<TensorBlock>& blocks);

}  // namespace dslaunch
