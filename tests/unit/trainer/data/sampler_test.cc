#include "trainer/data/sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace dslaunch::sampler_test {
namespace {

using testing::ElementsAre;

TEST(SamplerTest, UnshuffledRanksTakeEveryNthSample) {
  EXPECT_THAT(DistributedSampler({.num_samples = 10, .rank = 1, .world_size = 4, .shuffle = false})
                  .Indices(),
              ElementsAre(1, 5, 9));
  EXPECT_THAT(DistributedSampler({.num_samples = 10, .rank = 3, .world_size = 4, .shuffle = false})
                  .Indices(),
              ElementsAre(3, 7, 1))
      << "wraps around";
  EXPECT_THAT(
      DistributedSampler(
          {.num_samples = 10, .rank = 3, .world_size = 4, .shuffle = false, .drop_last = true})
          .Indices(),
      ElementsAre(3, 7));
}

TEST(SamplerTest, ShufflesEachEpochAnewAndCoversAllSamples) {
  std::vector<std::vector<int64_t>> orders;
  for (const int64_t epoch : {0, 1}) {
    std::vector<int64_t> all;
    for (int rank = 0; rank < 3; ++rank) {
      DistributedSampler sampler({.num_samples = 99, .rank = rank, .world_size = 3, .seed = 5});
      sampler.SetEpoch(epoch);
      for (const int64_t index : sampler.Indices()) all.push_back(index);
    }
    orders.push_back(all);
    std::sort(all.begin(), all.end());
    for (int64_t i = 0; i < 99; ++i) EXPECT_EQ(all[static_cast<size_t>(i)], i);
  }
  EXPECT_NE(orders[0], orders[1]);
}

TEST(SamplerTest, EvaluationCountsEverySampleOnce) {
  EXPECT_THAT(EvaluationIndices(7, 0, 3), ElementsAre(0, 3, 6));
  EXPECT_THAT(EvaluationIndices(7, 2, 3), ElementsAre(2, 5));
  EXPECT_THAT(EvaluationIndices(1, 2, 3), ElementsAre());
}

}  // namespace
}  // namespace dslaunch::sampler_test
