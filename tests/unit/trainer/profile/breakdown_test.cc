#include "trainer/profile/breakdown.h"

#include <gtest/gtest.h>

namespace dslaunch::breakdown_test {
namespace {

TEST(BreakdownTest, PrintsMeansOverSteps) {
  const PhaseTimes times = {.data = 0.001, .forward = 0.02, .backward = 0.06, .update = 0.004};
  EXPECT_EQ(
      BreakdownLine(20, times, /*compute_s=*/0.07, /*seconds=*/0.09, /*steps=*/2),
      "step 20: data 0.5 ms, forward 10.0 ms, backward 30.0 ms, update 2.0 ms; passes without "
      "waiting 35.0 ms; mean step 45.0 ms");
}

TEST(BreakdownTest, PrintsBatchTimeForPipeline) {
  EXPECT_EQ(BreakdownLine(1, {.data = 0.001, .batch = 0.05}, 0, 0.052, 1),
            "step 1: data 1.0 ms, batch 50.0 ms; mean step 52.0 ms");
}

}  // namespace
}  // namespace dslaunch::breakdown_test
