#include "cli/top/terminal_type.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

namespace dslaunch::terminal_type_test {
namespace {

using ::testing::HasSubstr;

std::string MessageFor(const char* type) {
  const Result<std::string> usable = UsableTerminalType(type);
  return usable.ok() ? "" : usable.error().message;
}

TEST(TerminalTypeTest, ReturnsKnownType) {
  ::unsetenv("TERMINFO");
  for (const char* type : {"xterm-256color", "screen", "linux", "vt100"}) {
    const Result<std::string> usable = UsableTerminalType(type);
    ASSERT_TRUE(usable.ok()) << usable.error().message;
    EXPECT_EQ(*usable, type);
  }
  EXPECT_EQ(std::getenv("TERMINFO"), nullptr);
}

TEST(TerminalTypeTest, RefusesUnusableTypeWithHint) {
  EXPECT_THAT(MessageFor(nullptr), HasSubstr("TERM is not set; dslaunch top JOB --once"));
  EXPECT_THAT(MessageFor(""), HasSubstr("TERM is not set"));
  EXPECT_THAT(MessageFor("foo"), HasSubstr("'foo' (TERM) is not in this machine's terminfo"));
  EXPECT_THAT(MessageFor("foo"), HasSubstr("set TERM=xterm"));
  EXPECT_THAT(MessageFor("xtermite"), HasSubstr("is not in this machine's terminfo"));
  EXPECT_THAT(MessageFor("dumb"), HasSubstr("cannot draw a screen"));
}

TEST(TerminalTypeTest, DescribesMissingTypeLikeXterm) {
  for (const char* type : {"xterm-no-such", "tmux-no-such", "alacritty-no-such"}) {
    ::unsetenv("TERMINFO");
    const Result<std::string> usable = UsableTerminalType(type);
    ASSERT_TRUE(usable.ok()) << usable.error().message;
    EXPECT_EQ(*usable, "xterm");
    EXPECT_THAT(std::getenv("TERMINFO"), HasSubstr("b64:"));
  }
  ::unsetenv("TERMINFO");
}

}  // namespace
}  // namespace dslaunch::terminal_type_test
