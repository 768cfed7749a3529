#include "trainer/program/text.h"

#include <gtest/gtest.h>

#include "trainer/base/train_error.h"

namespace dslaunch::text_test {
namespace {

TEST(TextTest, ConvertsBetweenBytesAndTokens) {
  const std::string text = "a\xc3\xa9\n";
  EXPECT_EQ(TokensOfText(text, 256), (std::vector<int64_t>{97, 0xc3, 0xa9, 10}));
  EXPECT_EQ(TextOfTokens(TokensOfText(text, 256)), text);
  EXPECT_EQ(TextOfTokens({98, 300, 0xff, '\x1b', '\n', 99}), "b\xef\xbf\xbd\xef\xbf\xbd\nc");
  EXPECT_THROW(TokensOfText(text, 128), TrainError);
}

}  // namespace
}  // namespace dslaunch::text_test
