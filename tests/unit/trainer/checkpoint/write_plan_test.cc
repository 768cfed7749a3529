#include "trainer/checkpoint/write_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>
#include <random>

namespace dslaunch::write_plan_test {
namespace {

constexpr int64_t kMi = 1 << 20;

using Shares = std::vector<std::optional<ElementRange>>;

TEST(WritePlanTest, OneRankWritesWholeTensors) {
  EXPECT_EQ(ShareOut({{5, 4}, {3 * kMi, 2}, {0, 4}}, 0, 1),
            (Shares{ElementRange{0, 5}, ElementRange{0, 3 * kMi}, std::nullopt}));
}

TEST(WritePlanTest, CutsLargeTensorsOnly) {
  const std::vector<TensorExtent> tensors = {{4 * kMi, 4}, {100, 4}};
  EXPECT_EQ(ShareOut(tensors, 0, 2), (Shares{ElementRange{0, 2 * kMi + 50}, std::nullopt}));
  EXPECT_EQ(ShareOut(tensors, 1, 2),
            (Shares{ElementRange{2 * kMi + 50, 4 * kMi}, ElementRange{0, 100}}));
  const std::vector<TensorExtent> small = {{1000, 4}, {1000, 4}};
  EXPECT_EQ(ShareOut(small, 0, 2), (Shares{ElementRange{0, 1000}, std::nullopt}));
  EXPECT_EQ(ShareOut(small, 1, 2), (Shares{std::nullopt, ElementRange{0, 1000}}));
  EXPECT_EQ(ShareOut(small, 0, 4, 4000), (Shares{ElementRange{0, 500}, std::nullopt}));
}

TEST(WritePlanTest, UsesFewerRanksForSmallShares) {
  EXPECT_EQ(CountWriters({}, 8), 1);
  EXPECT_EQ(CountWriters({{10, 4}, {10, 4}}, 8), 1);
  EXPECT_EQ(CountWriters({{kMi, 2}, {kMi, 1}}, 8), 3);
  EXPECT_EQ(CountWriters({{100 * kMi, 4}}, 8), 8);
  EXPECT_EQ(CountWriters({{10, 4}, {10, 4}}, 8, 20), 4);
  EXPECT_EQ(ShareOut({{10, 4}}, 1, 1), Shares(1));
}

TEST(WritePlanTest, SharesAreEqualAndHaveEachElementOnce) {
  const auto seed = std::random_device()();
  std::cout << "seed " << seed << "\n";
  std::mt19937 random(seed);
  const auto draw = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  for (int round = 0; round < 300; ++round) {
    std::vector<TensorExtent> tensors(static_cast<size_t>(draw(0, 30)));
    int64_t total_bytes = 0;
    for (TensorExtent& tensor : tensors) {
      tensor = {draw(0, 3) == 0 ? draw(0, 20 * kMi) : draw(0, 1000), int64_t{1} << draw(0, 3)};
      total_bytes += tensor.elements * tensor.element_bytes;
    }
    const int world_size = static_cast<int>(draw(1, 9));
    const int64_t min_share_bytes = draw(1, kMi);
    std::vector<int64_t> covered(tensors.size());
    for (int rank = 0; rank < world_size; ++rank) {
      const Shares shares = ShareOut(tensors, rank, world_size, min_share_bytes);
      ASSERT_EQ(shares.size(), tensors.size());
      int64_t bytes = 0;
      for (size_t i = 0; i < shares.size(); ++i) {
        if (!shares[i]) continue;
        EXPECT_EQ(shares[i]->start, covered[i]) << "ranks have ascending shares without holes";
        EXPECT_LT(shares[i]->start, shares[i]->end);
        covered[i] = shares[i]->end;
        bytes += (shares[i]->end - shares[i]->start) * tensors[i].element_bytes;
      }
      EXPECT_LE(std::abs(bytes - total_bytes / world_size), min_share_bytes + 16);
    }
    for (size_t i = 0; i < tensors.size(); ++i) EXPECT_EQ(covered[i], tensors[i].elements);
  }
}

}  // namespace
}  // namespace dslaunch::write_plan_test
