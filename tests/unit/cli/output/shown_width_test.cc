#include "cli/output/shown_width.h"

#include <gtest/gtest.h>

namespace dslaunch::shown_width_test {
namespace {

TEST(ShownWidth, CountsColumnsNotBytes) {
  EXPECT_EQ(ShownWidth("plain"), 5);
  EXPECT_EQ(ShownWidth("\x1b[31mred\x1b[0m"), 3);
  EXPECT_EQ(ShownWidth("\xe2\x96\x88\xe2\x96\x88"), 2);      // two block characters
  EXPECT_EQ(ShownWidth("\xe6\xbc\xa2\xf0\x9f\x98\x80"), 4);  // two wide characters
  EXPECT_EQ(ShownWidth("e\xcc\x81"), 1);                     // a letter with a combining accent
  EXPECT_EQ(ShownWidth("a\tb"), 9);
}

TEST(FitToWidth, LeavesTheLastColumnFree) {
  EXPECT_EQ(FitToWidth("abcdef", 80), "abcdef");
  EXPECT_EQ(FitToWidth("abcdef", 6), "abcde");
  EXPECT_EQ(FitToWidth("abcdef", 1), "");
  EXPECT_EQ(FitToWidth("abcdef", 0), "");
}

TEST(FitToWidth, CutsBetweenCharactersAndResetsColors) {
  EXPECT_EQ(FitToWidth("\xe2\x96\x88\xe2\x96\x88\xe2\x96\x88", 3), "\xe2\x96\x88\xe2\x96\x88");
  EXPECT_EQ(FitToWidth("a\xe6\xbc\xa2", 3), "a");
  EXPECT_EQ(FitToWidth("\x1b[31mred\x1b[0m", 3), "\x1b[31mre\x1b[0m");
  EXPECT_EQ(FitToWidth("\x1b[31mred\x1b[0m", 4), "\x1b[31mred\x1b[0m");
}

}  // namespace
}  // namespace dslaunch::shown_width_test
