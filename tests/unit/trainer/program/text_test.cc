#include "trainer/program/text.h"

#include <gtest/gtest.h>

#include "tests/unit/trainer/expect_refused.h"
#include "trainer/base/train_error.h"

namespace dslaunch::text_test {
namespace {

TEST(TextCodecTest, ConvertsBetweenBytesAndTokens) {
  const TextCodec bytes;
  const std::string text = "a\xc3\xa9\n";
  EXPECT_EQ(bytes.TokensOf(text), (std::vector<int64_t>{97, 0xc3, 0xa9, 10}));
  EXPECT_EQ(bytes.TextOf(bytes.TokensOf(text), /*skip_special=*/true), text);
  EXPECT_EQ(bytes.TextOf({98, 300}, /*skip_special=*/true), "b\xef\xbf\xbd");
  EXPECT_EQ(bytes.TextAfter({97, 98, 99}, 1, /*skip_special=*/true), "bc");
}

TEST(TextForTerminalTest, KeepsLinesAndRemovesControls) {
  EXPECT_EQ(TextForTerminal("b\xff\x1b\nc\n"), "b\xef\xbf\xbd\nc\n");
  EXPECT_EQ(TextForTerminal(""), "");
}

TEST(CheckTokensTest, RefusesTokensBeyondVocabulary) {
  CheckTokens({0, 127}, 128, "it");
  EXPECT_THROW(CheckTokens({0, 128}, 128, "it"), TrainError);
}

}  // namespace
}  // namespace dslaunch::text_test
