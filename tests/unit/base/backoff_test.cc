#include "base/backoff.h"

#include <gtest/gtest.h>

namespace dslaunch::backoff_test {
namespace {

TEST(PauseAfterTest, DoublesUpToTheLongest) {
  const auto longest_of = [](int attempt) {
    return PauseAfter(attempt, milliseconds(100), milliseconds(500), 0.999999).count();
  };
  EXPECT_NEAR(longest_of(0), 100, 1);
  EXPECT_NEAR(longest_of(1), 200, 1);
  EXPECT_NEAR(longest_of(2), 400, 1);
  EXPECT_NEAR(longest_of(3), 500, 1);
  EXPECT_NEAR(longest_of(1'000'000), 500, 1);
}

TEST(PauseAfterTest, StaysBetweenHalfAndFullPause) {
  EXPECT_EQ(PauseAfter(0, milliseconds(100), milliseconds(500), 0), milliseconds(50));
  EXPECT_EQ(PauseAfter(0, milliseconds(100), milliseconds(500), 0.5), milliseconds(75));
  EXPECT_EQ(PauseAfter(5, milliseconds(900), milliseconds(500), 0), milliseconds(250));
  for (int i = 0; i < 1000; ++i) {
    EXPECT_GE(RandomPart(), 0);
    EXPECT_LT(RandomPart(), 1);
  }
}

}  // namespace
}  // namespace dslaunch::backoff_test
