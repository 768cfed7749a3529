#include "trainer/foreign/blocks.h"

#include <algorithm>
#include <numeric>
#include <tuple>

#include "trainer/checkpoint/safetensors.h"
#include "trainer/shards/shards.h"

namespace dslaunch {
namespace {

int64_t Product(const std::vector<int64_t>& sizes, size_t begin, size_t end) {
  int64_t product = 1;
  for (size_t i = begin; i < end; ++i) product *= sizes[i];
  return product;
}

bool FitsInto(const TensorBlock& block, const std::vector<int64_t>& shape) {
  if (block.offsets.size() != shape.size() || block.sizes.size() != shape.size()) return false;
  for (size_t d = 0; d < shape.size(); ++d) {
    const int64_t offset = block.offsets[d], size = block.sizes[d];
    if (offset < 0 || size < 0 || offset > shape[d] || size > shape[d] - offset) return false;
  }
  return true;
}

// Returns the number of leading dimensions, among the first `dims`, up to the last one that the
// block does not span; 0 if the block spans all of them.
size_t CutDims(const TensorBlock& block, const std::vector<int64_t>& shape, size_t dims) {
  while (dims > 0 && block.sizes[dims - 1] == shape[dims - 1]) --dims;
  return dims;
}

// The positions of a block in the first dimensions of a tensor, as runs of consecutive row-major
// indices. All runs have the same length.
struct Runs {
  std::vector<int64_t> begins;
  int64_t length = 0;
};

// Returns the runs of a block in the first `dims` dimensions; nullopt if there are more than `most`
// runs.
std::optional<Runs> RunsOf(const TensorBlock& block, const std::vector<int64_t>& shape, size_t dims,
                           size_t most) {
  const size_t cut = CutDims(block, shape, dims);
  if (cut == 0) return Runs{{0}, Product(shape, 0, dims)};
  const size_t last = cut - 1;
  const int64_t inner = Product(shape, cut, dims);
  if (static_cast<uint64_t>(Product(block.sizes, 0, last)) > most) return std::nullopt;
  Runs runs = {{0}, block.sizes[last] * inner};
  for (size_t d = 0; d < last; ++d) {
    std::vector<int64_t> deeper;
    for (const int64_t begin : runs.begins) {
      for (int64_t i = 0; i < block.sizes[d]; ++i) {
        deeper.push_back(begin * shape[d] + block.offsets[d] + i);
      }
    }
    runs.begins = std::move(deeper);
  }
  for (int64_t& begin : runs.begins) {
    begin = (begin * shape[last] + block.offsets[last]) * inner;
  }
  return runs;
}

// Returns slices whose rows consist of the dimensions from `dims` on; nullopt if the slices do not
// tile the tensor or are too many. If `dims` is the number of dimensions, each slice is contiguous.
// `used` lists the indices of the blocks that have elements.
std::optional<std::vector<BlockSlice>> SlicesAt(size_t dims, const std::vector<int64_t>& shape,
                                                const std::vector<TensorBlock>& blocks,
                                                const std::vector<size_t>& used) {
  const int64_t elements = Product(shape, 0, shape.size());
  const bool flat = dims == shape.size();
  const int64_t inner = flat ? 1 : Product(shape, dims + 1, shape.size());
  std::vector<BlockSlice> slices;
  for (const size_t index : used) {
    const TensorBlock& block = blocks[index];
    const std::optional<Runs> runs = RunsOf(block, shape, dims, kMaxBlockSlices - slices.size());
    if (!runs) return std::nullopt;
    const int64_t row = flat ? elements : block.sizes[dims] * inner;
    const int64_t width = flat ? 1 : row;  // number of elements for each index of a run
    Shard shard = Shard::Whole(elements);
    if (!flat) shard = {block.offsets[dims] * inner, row, shape[dims] * inner, 0, 0};
    int64_t in_block = 0;
    for (const int64_t begin : runs->begins) {
      shard.start = begin * width;
      shard.stop = (begin + runs->length) * width;
      slices.push_back({shard, index, in_block});
      in_block += runs->length * width;
    }
  }
  std::ranges::sort(slices, {}, [](const BlockSlice& slice) {
    return std::tuple(slice.shard.offset, slice.shard.row, slice.shard.start);
  });
  ShardCoverage coverage(elements);
  for (const BlockSlice& slice : slices) {
    if (!coverage.Add(slice.shard)) return std::nullopt;
  }
  if (!coverage.complete()) return std::nullopt;
  return slices;
}

}  // namespace

BlockSlices SlicesOf(const std::vector<int64_t>& shape, const std::vector<TensorBlock>& blocks) {
  const std::optional<int64_t> elements = NumElements(shape);
  if (!elements) return {{}, "has a shape that is too large"};
  std::vector<size_t> used;  // indices of the blocks that have elements
  int64_t left = *elements;  // number of elements of the tensor that no block has covered yet
  size_t cut = 0;            // number of leading dimensions up to the last one that a block cuts
  bool flat = true;          // true if the elements of each block are contiguous in the tensor
  for (size_t i = 0; i < blocks.size(); ++i) {
    if (!FitsInto(blocks[i], shape)) return {{}, "has a block beyond its shape"};
    const int64_t size = *elements == 0 ? 0 : Product(blocks[i].sizes, 0, shape.size());
    if (size == 0) continue;
    if (size > left) return {{}, "has blocks that overlap"};
    left -= size;
    used.push_back(i);
    const size_t own_cut = CutDims(blocks[i], shape, shape.size());
    cut = std::max(cut, own_cut);
    flat = flat && (own_cut == 0 || Product(blocks[i].sizes, 0, own_cut - 1) == 1);
  }
  if (left > 0) return {{}, "lacks " + std::to_string(left) + " of its elements"};
  if (!flat) {
    if (auto slices = SlicesAt(cut - 1, shape, blocks, used)) return {*std::move(slices), ""};
  }
  if (auto slices = SlicesAt(shape.size(), shape, blocks, used)) return {*std::move(slices), ""};
  return {{},
          "has blocks that overlap, or that are more than " + std::to_string(kMaxBlockSlices) +
              " rows"};
}

}  // namespace dslaunch
