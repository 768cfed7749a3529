#include "proto/contract/engine_line.h"

#include <gtest/gtest.h>

namespace dslaunch::engine_line_test {
namespace {

using Kind = EngineLine::Kind;

TEST(EngineLineTest, ParsesFormattedLinesAfterNoise) {
  for (const EngineLine& line : {EngineLine{Kind::kDial, "3", "abc"},
                                 EngineLine{Kind::kFailed, "n1", "cannot create /home: no space"},
                                 EngineLine{Kind::kEnded, "0", "137"}}) {
    std::string text = FormatEngineLine(line, "5eed");
    ASSERT_EQ(text.back(), '\n');
    text.pop_back();
    EXPECT_EQ(ReadEngineLine(text, "5eed"), line);
    EXPECT_EQ(ReadEngineLine("prompt> " + text + "\r", "5eed"), line);
    EXPECT_EQ(ReadEngineLine(text, "5eee"), std::nullopt);
  }
}

TEST(EngineLineTest, RejectsOtherLines) {
  for (const char* noise : {"", "Welcome to node1", "DSLAUNCH-DIAL 5eed", "DSLAUNCH-DIAL 5eed 1",
                            "DSLAUNCH-DIAL 5eed  pin", "DSLAUNCH-HELLO 5eed 1 pin"})
    EXPECT_EQ(ReadEngineLine(noise, "5eed"), std::nullopt) << noise;
}

}  // namespace
}  // namespace dslaunch::engine_line_test
