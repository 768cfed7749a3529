#include "proto/contract/call_back_line.h"

#include <gtest/gtest.h>

namespace dslaunch::call_back_line_test {
namespace {

using Kind = CallBackLine::Kind;

TEST(CallBackLineTest, ReadReturnsFormattedLine) {
  for (const CallBackLine& line :
       {CallBackLine{Kind::kKey, "3", "abc"},
        CallBackLine{Kind::kFailed, "n1", "cannot create /home: no space"},
        CallBackLine{Kind::kEnded, "0", "137"}}) {
    std::string text = FormatCallBackLine(line, "5eed");
    ASSERT_EQ(text.back(), '\n');
    text.pop_back();
    EXPECT_EQ(ReadCallBackLine(text, "5eed"), line);
    EXPECT_EQ(ReadCallBackLine("prompt> " + text + "\r", "5eed"), line);
    EXPECT_EQ(ReadCallBackLine(text, "5eee"), std::nullopt);
  }
}

TEST(CallBackLineTest, IgnoresOtherLines) {
  for (const char* noise : {"", "Welcome to node1", "DSLAUNCH-KEY 5eed", "DSLAUNCH-KEY 5eed 1",
                            "DSLAUNCH-KEY 5eed  pin", "DSLAUNCH-HELLO 5eed 1 pin"})
    EXPECT_EQ(ReadCallBackLine(noise, "5eed"), std::nullopt) << noise;
}

}  // namespace
}  // namespace dslaunch::call_back_line_test
