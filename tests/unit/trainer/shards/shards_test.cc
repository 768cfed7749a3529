#include "trainer/shards/shards.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>
#include <numeric>
#include <random>
#include <span>

namespace dslaunch::shards_test {
namespace {

using testing::ElementsAre;
using Elements = std::vector<int64_t>;

// Returns the elements of a shard of a tensor with `all` elements, by the definition in
// dslaunch/shard.h.
Elements ElementsOf(const Shard& shard, int64_t all) {
  Elements elements;
  for (int64_t element = 0; element < all; ++element) {
    const int64_t in_row = element % shard.pitch - shard.offset;
    if (in_row >= 0 && in_row < shard.row) elements.push_back(element);
  }
  return {elements.begin() + shard.start, elements.begin() + shard.stop};
}

class ShardsTest : public testing::Test {
 protected:
  ShardsTest() { std::cout << "seed " << seed_ << "\n"; }

  int64_t Random(int64_t least, int64_t most) {
    return std::uniform_int_distribution<int64_t>(least, most)(random_);
  }
  int64_t RandomDivisor(int64_t number) {
    int64_t divisor;
    do divisor = Random(1, number);
    while (number % divisor != 0);
    return divisor;
  }
  // Returns a random part of a tensor with `all` elements, with one of a few pitches.
  Shard RandomShard(int64_t all) {
    const int64_t pitch = RandomDivisor(all), begin = Random(0, pitch), end = Random(begin, pitch);
    const Shard part = CutShard({all / pitch, pitch}, 1, begin, end);
    const int64_t start = Random(0, 2) == 0 ? 0 : Random(0, part.elements());
    return Slice(part, start, Random(0, 1) == 0 ? part.elements() : Random(start, part.elements()));
  }
  // Returns shards that cover a tensor: random column parts, each cut into flat slices.
  std::vector<Shard> RandomCover(int64_t all) {
    const int64_t pitch = RandomDivisor(all);
    std::vector<Shard> shards;
    for (int64_t begin = 0, end; begin < pitch; begin = end) {
      end = Random(begin + 1, pitch);
      const Shard part = CutShard({all / pitch, pitch}, 1, begin, end);
      for (int64_t start = 0, stop; start < part.elements(); start = stop) {
        stop = Random(start + 1, part.elements());
        shards.push_back(Slice(part, start, stop));
      }
    }
    return shards;
  }

  const unsigned seed_ = std::random_device()();
  std::mt19937 random_{seed_};
  const Elements sizes_ = {1, 2, 6, 12, 24, 36, 60, 72, 120};
  int64_t RandomSize() { return sizes_[static_cast<size_t>(Random(0, 8))]; }
};

bool Covers(const std::vector<Shard>& shards, int64_t all) {
  ShardCoverage coverage(all);
  return std::ranges::all_of(shards, [&](const Shard& shard) { return coverage.Add(shard); }) &&
         coverage.complete();
}

TEST_F(ShardsTest, CutShardHoldsElementsOfItsIndexRange) {
  for (int round = 0; round < 2000; ++round) {
    Elements shape;
    int64_t all = 1;
    for (int64_t dims = Random(1, 4); dims > 0; --dims) all *= shape.emplace_back(Random(1, 5));
    const auto dim = static_cast<size_t>(Random(0, static_cast<int64_t>(shape.size()) - 1));
    const int64_t begin = Random(0, shape[dim] + 2), end = Random(begin, shape[dim] + 3);
    int64_t inner = 1;
    for (size_t i = dim + 1; i < shape.size(); ++i) inner *= shape[i];
    Elements expected;
    for (int64_t element = 0; element < all; ++element) {
      const int64_t index = element / inner % shape[dim];
      if (index >= begin && index < end) expected.push_back(element);
    }
    ASSERT_EQ(ElementsOf(CutShard(shape, dim, begin, end), all), expected);
  }
}

TEST_F(ShardsTest, RowsAndWholeDimensionsAreContiguous) {
  EXPECT_EQ(CutShard({6, 4}, 0, 2, 5), (Shard{0, 24, 24, 8, 20}));
  EXPECT_EQ(CutShard({6, 4}, 1, 0, 4), Shard::Whole(24));
  EXPECT_EQ(CutShard({1, 4}, 1, 1, 3), (Shard{0, 4, 4, 1, 3}));
  EXPECT_EQ(CutShard({6, 4}, 1, 1, 3), (Shard{1, 2, 4, 0, 12}));
  EXPECT_EQ(CutShard({0, 4}, 0, 0, 0), Shard::Whole(0));
  EXPECT_EQ(CutShard({4, 0}, 1, 0, 0), Shard::Whole(0));
}

TEST_F(ShardsTest, FusedPartIsThreeRunsInEachRow) {
  const int64_t c = 4;  // width of each of q, k and v; the part is the second half of each
  const Shard part = CutShard({c, 3, c}, 2, 2, 4);
  EXPECT_EQ(part, (Shard{2, 2, 4, 0, 24}));
  EXPECT_THAT(ElementsOf(Slice(part, 0, 8), 48), ElementsAre(2, 3, 6, 7, 10, 11, 14, 15));
}

// A vocabulary of 5 is divided over 4 ranks, with ceil(5 / 4) rows each.
TEST_F(ShardsTest, PaddingBelongsToNoShard) {
  EXPECT_EQ(CutShard({5, 3}, 0, 4, 6), (Shard{0, 15, 15, 12, 15}));
  EXPECT_EQ(CutShard({5, 3}, 0, 6, 8).elements(), 0);
  // The part has three elements, followed by three elements of padding.
  const Shard part = CutShard({5, 3}, 0, 4, 6);
  EXPECT_EQ(Slice(part, 2, 6), (Shard{0, 15, 15, 14, 15}));
  EXPECT_EQ(Slice(part, 3, 6).elements(), 0);
}

TEST_F(ShardsTest, SliceCountsFromStartOfShard) {
  for (int round = 0; round < 2000; ++round) {
    const int64_t all = RandomSize();
    const Shard part = RandomShard(all);
    const int64_t start = Random(0, part.elements()), stop = Random(start, part.elements());
    const Elements elements = ElementsOf(part, all);
    EXPECT_EQ(ElementsOf(Slice(part, start, stop), all),
              Elements(elements.begin() + start, elements.begin() + stop));
  }
}

TEST_F(ShardsTest, BlocksListElementsInOrder) {
  for (int round = 0; round < 5000; ++round) {
    const int64_t all = RandomSize();
    const Shard shard = RandomShard(all);
    Elements elements;
    const std::vector<ShardBlock> blocks = BlocksOf(shard);
    for (const ShardBlock& block : blocks) {
      for (int64_t i = 0; i < block.rows * block.row; ++i) {
        elements.push_back(block.at + i / block.row * shard.pitch + i % block.row);
      }
    }
    ASSERT_EQ(elements, ElementsOf(shard, all));
    ASSERT_LE(blocks.size(), shard.contiguous() ? 1u : 3u);
  }
}

TEST_F(ShardsTest, CommonRunsAgreeWithBruteForce) {
  for (int round = 0; round < 50000; ++round) {
    const int64_t all = RandomSize();
    const Shard a = RandomShard(all), b = RandomShard(all);
    const Elements in_a = ElementsOf(a, all), in_b = ElementsOf(b, all);
    Elements expected(in_b.size(), -1), found = expected;
    for (size_t i = 0; i < in_b.size(); ++i) {
      const auto place = std::ranges::find(in_a, in_b[i]);
      if (place != in_a.end()) expected[i] = place - in_a.begin();
    }
    int64_t last = 0;
    ForEachCommonRun(a, b, [&](int64_t from, int64_t to, int64_t length) {
      ASSERT_GT(length, 0);
      ASSERT_GE(to, last) << "runs are in order";
      last = to + length;
      for (int64_t i = 0; i < length; ++i) found.at(static_cast<size_t>(to + i)) = from + i;
    });
    ASSERT_EQ(found, expected);
  }
}

// This is the usual load of a checkpoint by the same number of ranks.
TEST_F(ShardsTest, EqualCutsShareOneRun) {
  const Shard part = CutShard({1000, 64}, 1, 16, 32);
  int runs = 0;
  ForEachCommonRun(Slice(part, 10, 9000), Slice(part, 500, 16000),
                   [&](auto, auto, auto) { ++runs; });
  EXPECT_EQ(runs, 1);
}

TEST_F(ShardsTest, AnyCoverSuppliesElementsOfAnyOther) {
  for (int round = 0; round < 500; ++round) {
    const int64_t all = RandomSize();
    const std::vector<Shard> written = RandomCover(all);
    ASSERT_TRUE(Covers(written, all));
    std::vector<Shard> read = RandomCover(all);
    read.push_back(Shard::Whole(all));
    for (const Shard& wanted : read) {
      Elements found;
      for (const Shard& source : written) {
        ForEachCommonRun(source, wanted, [&](int64_t from, int64_t to, int64_t length) {
          for (int64_t i = 0; i < length; ++i) {
            found.resize(static_cast<size_t>(wanted.elements()), -1);
            found.at(static_cast<size_t>(to + i)) =
                ElementsOf(source, all).at(static_cast<size_t>(from + i));
          }
        });
      }
      ASSERT_EQ(found, ElementsOf(wanted, all));
    }
  }
}

TEST_F(ShardsTest, PiecesOfAnyRangesRestoreTensors) {
  for (int round = 0; round < 1000; ++round) {
    Elements sizes(static_cast<size_t>(Random(0, 5)));
    for (int64_t& size : sizes) size = Random(0, 6);
    const int64_t all = std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
    std::vector<Elements> found(sizes.size());
    for (int64_t begin = 0, end; begin < all; begin = end) {
      end = Random(begin + 1, all + 3);  // the last range may include padding
      int64_t at = 0;
      for (const ShardPiece& piece : PiecesInRange(sizes, begin, end)) {
        EXPECT_EQ(piece.at, at) << "pieces have no hole between them";
        at += piece.shard.elements();
        for (const int64_t i : ElementsOf(piece.shard, sizes[piece.tensor])) {
          found[piece.tensor].push_back(i);
        }
      }
      EXPECT_EQ(at, std::min(end, all) - begin);
    }
    for (size_t i = 0; i < sizes.size(); ++i) {
      EXPECT_EQ(found[i], ElementsOf(Shard::Whole(sizes[i]), sizes[i]));
    }
  }
}

TEST_F(ShardsTest, CoverageRefusesHolesAndOverlaps) {
  const auto refused = [](const std::vector<Shard>& shards, int64_t all) {
    return !Covers(shards, all);
  };
  const Shard left = CutShard({6, 4}, 1, 0, 1), right = CutShard({6, 4}, 1, 1, 4);
  EXPECT_TRUE(Covers({left, right}, 24));
  EXPECT_TRUE(Covers({left, Slice(right, 0, 5), Slice(right, 5, 5), Slice(right, 5, 18)}, 24));
  EXPECT_TRUE(refused({left}, 24));
  EXPECT_TRUE(refused({right}, 24));
  EXPECT_TRUE(refused({right, left}, 24)) << "order";
  EXPECT_TRUE(refused({left, left, right}, 24));
  EXPECT_TRUE(refused({left, right, Shard::Whole(24)}, 24));
  EXPECT_TRUE(refused({Slice(left, 0, 5), right}, 24));
  EXPECT_TRUE(refused({left, CutShard({6, 4}, 1, 2, 4)}, 24));
  EXPECT_TRUE(refused({left, CutShard({3, 8}, 1, 1, 8)}, 24)) << "another pitch";
  EXPECT_TRUE(refused({left, right}, 48));
  EXPECT_TRUE(refused({{0, 5, 5, 0, 24}}, 24)) << "a pitch that does not divide the tensor";
  EXPECT_TRUE(refused({}, 24));
  EXPECT_TRUE(Covers({}, 0));
  EXPECT_TRUE(refused({Shard::Whole(2)}, 0));
}

TEST_F(ShardsTest, CoverageOfChangedShardsAgreesWithBruteForce) {
  constexpr int64_t kLarge = INT64_MAX;
  int accepted = 0;
  for (int round = 0; round < 20000; ++round) {
    const int64_t all = RandomSize();
    std::vector<Shard> shards = RandomCover(all);
    for (int64_t changes = Random(0, 2); changes > 0; --changes) {
      Shard& shard =
          shards[static_cast<size_t>(Random(0, static_cast<int64_t>(shards.size()) - 1))];
      int64_t* const fields[] = {&shard.offset, &shard.row, &shard.pitch, &shard.start,
                                 &shard.stop};
      const int64_t values[] = {0,       1,         all, kLarge, -1, Random(0, all), Random(0, all),
                                -kLarge, kLarge / 2};
      *fields[Random(0, 4)] = values[Random(0, 8)];
    }
    if (!Covers(shards, all)) continue;
    ++accepted;
    std::vector<int> held(static_cast<size_t>(all));
    for (const Shard& shard : shards) {
      ASSERT_LE(shard.row, shard.pitch - shard.offset);
      ASSERT_LE(shard.stop, all / shard.pitch * shard.row);
      for (const int64_t element : ElementsOf(shard, all)) ++held[static_cast<size_t>(element)];
    }
    ASSERT_THAT(held, testing::Each(1));
  }
  EXPECT_GT(accepted, 5000);
}

}  // namespace
}  // namespace dslaunch::shards_test
