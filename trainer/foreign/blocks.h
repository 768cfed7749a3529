// Converts blocks of a tensor with n dimensions to the slices that a manifest stores. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "dslaunch/shard.h"

namespace dslaunch {

// A block of a tensor: elements [offsets[d], offsets[d] + sizes[d]) in each dimension d, stored in
// row-major order.
struct TensorBlock {
  std::vector<int64_t> offsets;
  std::vector<int64_t> sizes;
};

struct BlockSlice {
  Shard shard;
  size_t block = 0;      // index of the block that contains the elements
  int64_t in_block = 0;  // index, within the block, of the slice's first element
};

inline constexpr size_t kMaxBlockSlices = 1'000'000;

// The slices of a tensor's blocks, or the problem that prevents them. The slices contain each
// element of the tensor once, in the order and with the single pitch that TensorRecord requires. A
// block is one slice if the blocks form a grid with cuts in at most two dimensions; otherwise each
// block is divided into rows. Blocks without elements are skipped. `problem` is a sentence without
// subject if the blocks do not fit into `shape`, leave a hole, overlap, or need more than
// kMaxBlockSlices slices.
struct BlockSlices {
  std::vector<BlockSlice> slices;
  std::string problem;  // empty if `slices` is valid
};
BlockSlices SlicesOf(const std::vector<int64_t>& shape, const std::vector<TensorBlock>& blocks);

}  // namespace dslaunch
