#include "trainer/train/gradient_traffic.h"

#include <gtest/gtest.h>

namespace dslaunch::gradient_traffic_test {
namespace {

// Returns `count` units of one parameter each.
std::vector<GradientUnit> Units(int count) {
  std::vector<GradientUnit> units;
  for (int i = 0; i < count; ++i) units.push_back({{static_cast<size_t>(i)}, 100, 10});
  return units;
}

TEST(MostOnTheirWay, OverlapCountsTwoUnitsInExchangeAndTwoMore) {
  EXPECT_EQ(MostOnTheirWay(Units(5), true), 4 * 100 + 2 * 10) << "and a gradient of the next";
  EXPECT_EQ(MostOnTheirWay(Units(2), true), 2 * 100 + 2 * 10);
  EXPECT_EQ(MostOnTheirWay(Units(5), false), 210);
  EXPECT_EQ(MostOnTheirWay({}, true), 0);
}

TEST(MostWithPasses, AddsUnitsInExchangeToPeakOfPasses) {
  std::vector<GradientArrival> arrivals;
  for (size_t i = 0; i < 5; ++i) arrivals.push_back({i, 1000, 7, 5});
  EXPECT_EQ(MostWithPasses(Units(5), false, arrivals, 0), 1000) << "each travels alone";
  EXPECT_EQ(MostWithPasses(Units(5), true, arrivals, 0), 1000 + 2 * 110);
  // The passes hold much memory until the first gradient arrives, and little afterwards.
  for (size_t i = 1; i < 5; ++i) arrivals[i].peak = 20;
  EXPECT_EQ(MostWithPasses(Units(5), true, arrivals, 0), 1000);
  arrivals[0].peak = 0;
  EXPECT_EQ(MostWithPasses(Units(5), true, arrivals, 0), 3 * 100 + 2 * 10 + 7);
  EXPECT_EQ(MostWithPasses(Units(5), true, arrivals, 900), 900 + 2 * 110);
}

TEST(MostWithPasses, CountsUnitsThatWaitForAnEarlierUnit) {
  std::vector<GradientArrival> arrivals;
  for (const size_t i : {1, 2, 3, 0}) arrivals.push_back({i, 0, 0, 0});
  EXPECT_EQ(MostWithPasses(Units(4), true, arrivals, 0), 4 * 100 + 2 * 10);
  std::vector<GradientUnit> one = {{{0, 1, 2, 3}, 100, 10}};
  EXPECT_EQ(MostWithPasses(one, true, arrivals, 0), 110);
}

}  // namespace
}  // namespace dslaunch::gradient_traffic_test
