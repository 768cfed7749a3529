#include "proto/contract/rank_link.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace dslaunch::rank_link_test {
namespace {

using ::testing::HasSubstr;

RankLinkMessage Example() {
  RankLinkMessage message;
  message.kind = RankLinkMessage::Kind::kDial;
  message.from = 3;
  message.to = 70'000;
  message.node = 2;
  message.attempt = (uint64_t{1} << 40) + 7;
  message.label = "job.0/stage 1";
  message.text = "10.0.0.1:4711 [fe80::1]:4711";
  return message;
}

TEST(RankLinkTest, DecodesEncodedMessages) {
  const std::string bytes = EncodeRankLink(Example());
  EXPECT_EQ(bytes.size(), kRankLinkMessageBytes);
  const Result<RankLinkMessage> back = DecodeRankLink(bytes);
  ASSERT_TRUE(back.ok()) << back.error().message;
  EXPECT_EQ(*back, Example());
}

TEST(RankLinkTest, CutsTextsToTheirLimits) {
  RankLinkMessage message = Example();
  message.label = std::string(5'000, 'l');
  message.text = std::string(5'000, 't');
  const Result<RankLinkMessage> back = DecodeRankLink(EncodeRankLink(message));
  ASSERT_TRUE(back.ok()) << back.error().message;
  EXPECT_EQ(back->label, std::string(kMaxRankLinkLabel, 'l'));
  EXPECT_EQ(back->text, std::string(kMaxRankLinkText, 't'));
}

TEST(RankLinkTest, RejectsInvalidBytes) {
  const auto refusal = [](const std::string& bytes) {
    const Result<RankLinkMessage> message = DecodeRankLink(bytes);
    return message.ok() ? "" : message.error().message;
  };
  const std::string good = EncodeRankLink(Example());
  EXPECT_THAT(refusal(""), HasSubstr("has 0 bytes"));
  EXPECT_THAT(refusal(good + "x"), HasSubstr("has 1025 bytes"));
  EXPECT_THAT(refusal(std::string(kRankLinkMessageBytes, 'x')),
              HasSubstr("does not begin like one"));
  std::string other_kind = good;
  other_kind[4] = 9;
  EXPECT_THAT(refusal(other_kind), HasSubstr("unknown kind 9"));
  std::string long_label = good;
  long_label[22] = 1;  // increases the length of the label by 65,536
  EXPECT_THAT(refusal(long_label), HasSubstr("longer than it may be"));
}

}  // namespace
}  // namespace dslaunch::rank_link_test
