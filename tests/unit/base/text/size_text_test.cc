#include "base/text/size_text.h"

#include <gtest/gtest.h>

namespace dslaunch::size_text_test {
namespace {

TEST(DurationTextTest, ShowsOnlyRelevantUnits) {
  EXPECT_EQ(DurationText(-1), "0 s");
  EXPECT_EQ(DurationText(250), "0.25 s");
  EXPECT_EQ(DurationText(2000), "2 s");
  EXPECT_EQ(DurationText(60'999), "1 min");
  EXPECT_EQ(DurationText(302'000), "5 min 02 s");
  EXPECT_EQ(DurationText(3'600'000), "1 h");
  EXPECT_EQ(DurationText(3'605'000), "1 h 00 min 05 s");
  EXPECT_EQ(DurationText(5'400'000), "1 h 30 min");
  EXPECT_EQ(DurationText(100'000'000), "27 h 46 min 40 s");
  EXPECT_EQ(DurationText(266'400'000), "3 d 02 h");
  EXPECT_EQ(DurationText(172'800'000), "2 d");
}

}  // namespace
}  // namespace dslaunch::size_text_test
