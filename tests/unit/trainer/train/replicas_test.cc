#include "trainer/train/replicas.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainer/base/seed.h"

namespace dslaunch::replicas_test {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(ReplicasTest, AnySingleBitChangesTheHash) {
  std::vector<unsigned char> bytes(37);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<unsigned char>(7 * i);
  const uint64_t hash = HashBytes(bytes.data(), bytes.size(), 1);
  EXPECT_EQ(HashBytes(bytes.data(), bytes.size(), 1), hash);
  EXPECT_NE(HashBytes(bytes.data(), bytes.size(), 2), hash);
  EXPECT_NE(HashBytes(bytes.data(), bytes.size() - 1, 1), hash);
  for (size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    const auto flip = static_cast<unsigned char>(1 << bit % 8);
    bytes[bit / 8] ^= flip;
    EXPECT_NE(HashBytes(bytes.data(), bytes.size(), 1), hash) << "bit " << bit;
    bytes[bit / 8] ^= flip;
  }
}

TEST(ReplicasTest, HashDependsOnOrderOfWords) {
  const uint64_t one[] = {1, 2, 3}, other[] = {2, 1, 3};
  EXPECT_NE(HashBytes(one, sizeof one, 0), HashBytes(other, sizeof other, 0));
  EXPECT_EQ(HashBytes(nullptr, 0, 5), HashBytes(one, 0, 5));
}

TEST(ReplicasTest, NamesDriftedRank) {
  EXPECT_EQ(DriftMessage({5, 5, 5}, 40, 30), "");
  EXPECT_EQ(DriftMessage({5}, 40, 30), "");
  const std::string message = DriftMessage({5, 5, 9, 5}, 40, 30);
  EXPECT_THAT(message, StartsWith("the weights of rank 2 differ from those of the other ranks "
                                  "after step 40, and were equal after step 30"));
  EXPECT_THAT(message, HasSubstr("--resume"));
  EXPECT_THAT(DriftMessage({5, 7, 9, 5, 5}, 40, 30),
              StartsWith("the weights of ranks 1, 2 differ"));
}

TEST(ReplicasTest, NamesNoRankWithoutMajority) {
  const std::string message = DriftMessage({5, 9}, 2, 1);
  EXPECT_THAT(message, HasSubstr("none of which is the majority"));
  EXPECT_THAT(message, HasSubstr("(rank 0)"));
  EXPECT_THAT(message, HasSubstr("(rank 1)"));
}

TEST(StepSeedTest, DiffersForEachMicroBatch) {
  std::set<uint32_t> seeds;  // generators use only 32 bits of a seed
  for (uint64_t seed : {0, 1})
    for (int64_t step = 1; step <= 20; ++step)
      for (int64_t part = 0; part < 4; ++part)
        for (int rank = 0; rank < 4; ++rank)
          seeds.insert(static_cast<uint32_t>(MicroBatchSeed(seed, step, part, rank)));
  EXPECT_EQ(seeds.size(), 2u * 20 * 4 * 4);
  EXPECT_EQ(MicroBatchSeed(7, 3, 1, 2), MicroBatchSeed(7, 3, 1, 2));
}

}  // namespace
}  // namespace dslaunch::replicas_test
