#include "trainer/foreign/blocks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <iostream>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

namespace dslaunch::blocks_test {
namespace {

using testing::HasSubstr;
using Shape = std::vector<int64_t>;

int64_t ElementsOf(const Shape& shape) {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

// Calls f(index) for each element of a tensor of `sizes`, in row-major order.
template <class F>
void ForEachIndex(const Shape& sizes, const F& f) {
  Shape index(sizes.size(), 0);
  for (int64_t left = ElementsOf(sizes); left > 0; --left) {
    f(index);
    for (size_t d = sizes.size(); d > 0 && ++index[d - 1] == sizes[d - 1]; --d) index[d - 1] = 0;
  }
}

// Returns the positions of a block's elements in the whole tensor, in the block's order.
Shape Positions(const Shape& shape, const TensorBlock& block) {
  Shape positions;
  ForEachIndex(block.sizes, [&](const Shape& index) {
    int64_t at = 0;
    for (size_t d = 0; d < shape.size(); ++d) at = at * shape[d] + block.offsets[d] + index[d];
    positions.push_back(at);
  });
  return positions;
}

// Expects the slices to take each element of the tensor from the block that contains it.
void ExpectSame(const Shape& shape, const std::vector<TensorBlock>& blocks,
                const std::vector<BlockSlice>& slices) {
  std::vector<std::pair<size_t, int64_t>> wanted(static_cast<size_t>(ElementsOf(shape)));
  for (size_t i = 0; i < blocks.size(); ++i) {
    const Shape positions = Positions(shape, blocks[i]);
    for (size_t k = 0; k < positions.size(); ++k) {
      wanted[static_cast<size_t>(positions[k])] = {i, static_cast<int64_t>(k)};
    }
  }
  std::vector<std::pair<size_t, int64_t>> got(wanted.size(), {~size_t{0}, -1});
  for (const auto& [shard, block, in_block] : slices) {
    for (int64_t i = shard.start; i < shard.stop; ++i) {
      const int64_t at = i / shard.row * shard.pitch + shard.offset + i % shard.row;
      got.at(static_cast<size_t>(at)) = {block, in_block + i - shard.start};
    }
  }
  EXPECT_EQ(got, wanted);
}

class BlocksTest : public testing::Test {
 protected:
  BlocksTest() { std::cout << "seed " << seed_ << "\n"; }

  int64_t Random(int64_t least, int64_t most) {
    return std::uniform_int_distribution<int64_t>(least, most)(random_);
  }
  Shape RandomShape() {
    Shape shape(static_cast<size_t>(Random(0, 4)));
    for (int64_t& size : shape) size = Random(1, 5);
    return shape;
  }
  // Divides a tensor into blocks at random places, `cuts` times. Some blocks may be empty.
  std::vector<TensorBlock> RandomTiling(const Shape& shape, int cuts) {
    std::vector<TensorBlock> blocks = {{Shape(shape.size(), 0), shape}};
    for (int i = 0; i < cuts && !shape.empty(); ++i) {
      const auto which = static_cast<size_t>(Random(0, static_cast<int64_t>(blocks.size()) - 1));
      const auto d = static_cast<size_t>(Random(0, static_cast<int64_t>(shape.size()) - 1));
      TensorBlock rest = blocks[which];
      const int64_t kept = Random(0, rest.sizes[d]);  // 0 makes a block without elements
      blocks[which].sizes[d] = kept;
      rest.offsets[d] += kept;
      rest.sizes[d] -= kept;
      blocks.push_back(rest);
    }
    std::shuffle(blocks.begin(), blocks.end(), random_);
    return blocks;
  }

  const unsigned seed_ = std::random_device()();
  std::mt19937 random_{seed_};
};

TEST_F(BlocksTest, SlicesHoldElementsOfRandomTilings) {
  for (int i = 0; i < 2000; ++i) {
    const Shape shape = RandomShape();
    const std::vector<TensorBlock> blocks = RandomTiling(shape, static_cast<int>(Random(0, 6)));
    const BlockSlices result = SlicesOf(shape, blocks);
    ASSERT_EQ(result.problem, "");
    ExpectSame(shape, blocks, result.slices);
  }
}

TEST_F(BlocksTest, RefusesTilingWithOneChangedBlock) {
  for (int i = 0; i < 2000; ++i) {
    Shape shape = RandomShape();
    if (shape.empty()) shape = {3};
    std::vector<TensorBlock> blocks = RandomTiling(shape, static_cast<int>(Random(0, 6)));
    TensorBlock& changed =
        blocks[static_cast<size_t>(Random(0, static_cast<int64_t>(blocks.size()) - 1))];
    const auto d = static_cast<size_t>(Random(0, static_cast<int64_t>(shape.size()) - 1));
    if (ElementsOf(changed.sizes) == 0) continue;
    (Random(0, 1) == 0 ? changed.sizes : changed.offsets)[d] += Random(0, 1) == 0 ? 1 : -1;
    EXPECT_NE(SlicesOf(shape, blocks).problem, "");
  }
}

TEST_F(BlocksTest, GridsNeedOneSliceForEachBlock) {
  for (const Shape& grid : {Shape{4, 1, 1}, {1, 3, 1}, {2, 3, 1}, {1, 2, 2}}) {
    const Shape shape = {4, 6, 8};
    std::vector<TensorBlock> blocks;
    ForEachIndex(grid, [&](const Shape& index) {
      TensorBlock block;
      for (size_t d = 0; d < 3; ++d) {
        block.sizes.push_back(shape[d] / grid[d]);
        block.offsets.push_back(index[d] * block.sizes.back());
      }
      blocks.push_back(block);
    });
    // Number of rows of the uncut first dimension.
    const size_t leading = grid[1] > 1 && grid[2] > 1 ? 4 : 1;
    EXPECT_EQ(SlicesOf(shape, blocks).slices.size(), blocks.size() * leading);
  }
}

TEST_F(BlocksTest, RefusesImpossibleBlocks) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  const auto problem = [](const Shape& shape, const std::vector<TensorBlock>& blocks) {
    return SlicesOf(shape, blocks).problem;
  };
  EXPECT_THAT(problem({kMost, 2}, {}), HasSubstr("too large"));
  EXPECT_THAT(problem({4}, {{{0}, {kMost}}}), HasSubstr("beyond its shape"));
  EXPECT_THAT(problem({4}, {{{kMost}, {kMost}}}), HasSubstr("beyond its shape"));
  EXPECT_THAT(problem({4}, {{{-1}, {2}}}), HasSubstr("beyond its shape"));
  EXPECT_THAT(problem({4}, {{{0, 0}, {4, 1}}}), HasSubstr("beyond its shape"));
  EXPECT_THAT(problem({4}, {{{0}, {3}}, {{1}, {3}}}), HasSubstr("overlap"));
  EXPECT_THAT(problem({4}, {{{0}, {2}}, {{1}, {2}}}), HasSubstr("overlap"));
  EXPECT_THAT(problem({4}, {{{0}, {3}}}), HasSubstr("lacks 1 of its elements"));
  EXPECT_THAT(problem({3'000'000, 2}, {{{0, 0}, {3'000'000, 1}},
                                       {{0, 1}, {1'000'000, 1}},
                                       {{1'000'000, 1}, {2'000'000, 1}}}),
              "");
  // Only the upper rows are cut into two halves of columns, so rows of the lower part would be
  // single slices.
  EXPECT_THAT(problem({4'000'000, 2}, {{{0, 0}, {2'000'000, 1}},
                                       {{0, 1}, {2'000'000, 1}},
                                       {{2'000'000, 0}, {2'000'000, 2}}}),
              HasSubstr("more than 1000000 rows"));
}

TEST_F(BlocksTest, AcceptsTensorsWithoutElements) {
  const BlockSlices result = SlicesOf({0, 7}, {{{0, 0}, {0, 7}}});
  EXPECT_EQ(result.problem, "");
  EXPECT_TRUE(result.slices.empty());
}

}  // namespace
}  // namespace dslaunch::blocks_test
