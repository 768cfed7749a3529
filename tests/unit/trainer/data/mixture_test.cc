#include "trainer/data/mixture.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace dslaunch::mixture_test {
namespace {

using testing::ElementsAre;

TEST(MixtureTest, TakesSourceFurthestBehindItsShare) {
  const Mixture mixture(std::vector<double>{0.5, 0.3, 0.2});
  std::vector<int64_t> sources;
  for (int64_t i = 0; i < 10; ++i) sources.push_back(mixture.At(i).source);
  EXPECT_THAT(sources, ElementsAre(0, 1, 2, 0, 0, 1, 0, 2, 1, 0));
}

TEST(MixtureTest, KeepsSharesWithinOneSampleAndNumbersThem) {
  const std::vector<double> weights = {3, 0.1, 1, 7};
  const Mixture mixture(weights);
  std::vector<int64_t> counts(weights.size());
  for (int64_t i = 0; i < 2 * Mixture::kPeriod + 77; ++i) {
    const auto [source, number] = mixture.At(i);
    ASSERT_EQ(number, counts[static_cast<size_t>(source)]++) << i;
    for (size_t j = 0; j < weights.size(); ++j) {
      const double wanted = static_cast<double>(mixture.shares()[j] * (i + 1)) / Mixture::kPeriod;
      ASSERT_LT(std::abs(static_cast<double>(counts[j]) - wanted), 1.5) << i << " " << j;
    }
  }
  EXPECT_THAT(mixture.shares(), ElementsAre(2703, 90, 901, 6306));
}

TEST(MixtureTest, GivesTinyWeightsOneSampleInPeriod) {
  const std::vector<double> weights = {1e-300, std::numeric_limits<double>::max(), 1,
                                       std::numeric_limits<double>::max()};
  EXPECT_THAT(Mixture(weights).shares(), ElementsAre(1, 4998, 1, 5000));
  const std::vector<double> many(Mixture::kPeriod, 1.0);
  EXPECT_EQ(Mixture(many).At(Mixture::kPeriod + 5).source, 5);
}

}  // namespace
}  // namespace dslaunch::mixture_test
