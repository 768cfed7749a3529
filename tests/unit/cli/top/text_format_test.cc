#include "cli/top/text_format.h"

#include <gtest/gtest.h>

#include <limits>

namespace dslaunch::text_format_test {
namespace {

TEST(TextFormatTest, BriefBytes) {
  EXPECT_EQ(BriefBytes(0), "0");
  EXPECT_EQ(BriefBytes(999), "999");
  EXPECT_EQ(BriefBytes(1000), "1.0K");
  EXPECT_EQ(BriefBytes(uint64_t{61} << 30), "61G");
  EXPECT_EQ(BriefBytes(1023.9 * 1024), "1.0M");
  EXPECT_EQ(BriefBytes(1e30), "867361737988E");
}

TEST(TextFormatTest, BriefNumber) {
  EXPECT_EQ(BriefNumber(0.5123), "0.512");
  EXPECT_EQ(BriefNumber(16.54), "16.5");
  EXPECT_EQ(BriefNumber(412.3), "412");
  EXPECT_EQ(BriefNumber(51200), "51k");
  EXPECT_EQ(BriefNumber(2e7), "20M");
  EXPECT_EQ(BriefNumber(std::numeric_limits<double>::quiet_NaN()), "?");
}

TEST(TextFormatTest, RankRangesText) {
  EXPECT_EQ(RankRangesText({3}, 20), "rank 3");
  EXPECT_EQ(RankRangesText({0, 1, 2, 5}, 20), "ranks 0-2, 5");
  EXPECT_EQ(RankRangesText({0, 2, 4, 6, 8, 10}, 15), "ranks 0, 2, 4 ...");
}

TEST(TextFormatTest, MedianValue) {
  EXPECT_FALSE(MedianValue({}));
  EXPECT_EQ(MedianValue({3, 1, 2}), 2);
}

}  // namespace
}  // namespace dslaunch::text_format_test
