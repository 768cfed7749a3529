// Divides tensors of n dimensions, given as blocks, into shards. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "dslaunch/shard.h"

namespace dslaunch {

// The elements at [offsets[d], offsets[d] + sizes[d]) of each dimension d of a tensor, stored in
// row-major order.
struct TensorBlock {
  std::vector<int64_t> offsets;
  std::vector<int64_t> sizes;
};

struct BlockSlice {
  Shard shard;
  size_t block = 0;      // index of the block that contains the elements
  int64_t in_block = 0;  // index of the slice's first element in the block
};

inline constexpr size_t kMaxBlockSlices = 1'000'000;

// The slices of a tensor's blocks, or the reason why there are none. The slices contain each
// element of the tensor once, in the order and with the single pitch that TensorRecord requires. A
// block is one slice if the blocks form a grid with cuts in at most two dimensions; otherwise each
// block is divided into rows. Blocks without elements are skipped. The blocks need not be valid:
// `problem` is a sentence without subject if they do not fit into `shape`, leave a hole, overlap,
// or need more than kMaxBlockSlices slices.
struct BlockSlices {
  std::vector<BlockSlice> slices;
  std::string problem;  // empty if the blocks are valid
};
BlockSlices SlicesOf(const std::vector<int64_t>& shape, const std::vector<TensorBlock>& blocks);

}  // namespace dslaunch
