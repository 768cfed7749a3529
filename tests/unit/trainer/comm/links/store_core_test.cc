#include "trainer/comm/links/store_core.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace dslaunch::store_core_test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using Op = StoreRequest::Op;

class StoreCoreTest : public ::testing::Test {
 protected:
  std::vector<StoreCore::Answer> Ask(uint64_t client, Op op, std::vector<std::string> keys,
                                     std::vector<std::string> values = {}, int64_t number = 0) {
    return core_.OnRequest(client, {op, ++id_, number, std::move(keys), std::move(values)});
  }
  StoreReply Answer(Op op, std::vector<std::string> keys, std::vector<std::string> values = {},
                    int64_t number = 0) {
    const auto answers = Ask(1, op, std::move(keys), std::move(values), number);
    EXPECT_THAT(answers, SizeIs(1));
    return answers.empty() ? StoreReply() : answers.front().reply;
  }

  StoreCore core_;
  uint64_t id_ = 0;
};

TEST_F(StoreCoreTest, KeepsValues) {
  Answer(Op::kSet, {"a", "b"}, {"1", std::string("\0x", 2)});
  EXPECT_THAT(Answer(Op::kGet, {"b", "a"}).values, ElementsAre(std::string("\0x", 2), "1"));
  Answer(Op::kAppend, {"a"}, {"23"});
  EXPECT_THAT(Answer(Op::kGet, {"a"}).values, ElementsAre("123"));
  EXPECT_EQ(Answer(Op::kNumKeys, {}).number, 2);
  EXPECT_EQ(Answer(Op::kCheck, {"a", "b"}).number, 1);
  EXPECT_EQ(Answer(Op::kDelete, {"a"}).number, 1);
  EXPECT_EQ(Answer(Op::kDelete, {"a"}).number, 0);
  EXPECT_EQ(Answer(Op::kCheck, {"a", "b"}).number, 0);
}

TEST_F(StoreCoreTest, AddsNumbers) {
  EXPECT_EQ(Answer(Op::kAdd, {"n"}, {}, 5).number, 5);
  EXPECT_EQ(Answer(Op::kAdd, {"n"}, {}, -7).number, -2);
  EXPECT_THAT(Answer(Op::kGet, {"n"}).values, ElementsAre("-2"));
}

TEST_F(StoreCoreTest, CompareSetReplacesExpectedValueOnly) {
  EXPECT_THAT(Answer(Op::kCompareSet, {"k"}, {"old", "new"}).values, ElementsAre("old"));
  EXPECT_EQ(Answer(Op::kCheck, {"k"}).number, 0);
  EXPECT_THAT(Answer(Op::kCompareSet, {"k"}, {"", "first"}).values, ElementsAre("first"));
  EXPECT_THAT(Answer(Op::kCompareSet, {"k"}, {"other", "x"}).values, ElementsAre("first"));
  EXPECT_THAT(Answer(Op::kCompareSet, {"k"}, {"first", "x"}).values, ElementsAre("x"));
}

TEST_F(StoreCoreTest, AnswersWaitsOnceAllKeysExist) {
  EXPECT_THAT(Ask(1, Op::kGet, {"a", "b"}), IsEmpty());
  EXPECT_THAT(Ask(2, Op::kWait, {"b"}), IsEmpty());
  EXPECT_THAT(Ask(3, Op::kSet, {"a"}, {"1"}), SizeIs(1));
  const auto answers = Ask(3, Op::kSet, {"b"}, {"2"});
  ASSERT_THAT(answers, SizeIs(3));
  EXPECT_EQ(answers[1].client, 1u);
  EXPECT_EQ(answers[1].reply.id, 1u);
  EXPECT_THAT(answers[1].reply.values, ElementsAre("1", "2"));
  EXPECT_EQ(answers[2].client, 2u);
  EXPECT_EQ(answers[2].reply.id, 2u);
}

TEST_F(StoreCoreTest, DropsWaitsOfClosedClients) {
  Ask(1, Op::kWait, {"a"});
  core_.OnClientGone(1);
  EXPECT_THAT(Ask(2, Op::kSet, {"a"}, {"1"}), SizeIs(1));
}

TEST(StoreMessageTest, DecodesMessagesReceivedByteByByte) {
  const StoreRequest request = {Op::kSet, 77, -5, {"k", ""}, {"v", std::string(1000, 'x')}};
  const std::string bytes = EncodeRequest(request) + EncodeReply({9, 3, {"r"}});
  std::string buffer;
  std::vector<std::string> messages;
  for (const char byte : bytes) {
    buffer.push_back(byte);
    if (const auto message = TakeStoreMessage(buffer)) messages.push_back(*message);
  }
  ASSERT_THAT(messages, SizeIs(2));
  EXPECT_EQ(DecodeRequest(messages[0]), request);
  EXPECT_EQ(DecodeReply(messages[1]), (StoreReply{9, 3, {"r"}}));
}

TEST(StoreMessageTest, AnswersRequiresRequestedValues) {
  const StoreRequest get = {Op::kGet, 1, 0, {"a", "b"}, {}};
  EXPECT_TRUE(Answers({1, 0, {"1", "2"}}, get));
  EXPECT_FALSE(Answers({1, 0, {"1"}}, get));
  EXPECT_FALSE(Answers({1, 0, {}}, get));
  EXPECT_FALSE(Answers({2, 0, {"1", "2"}}, get));
  const StoreRequest compare = {Op::kCompareSet, 1, 0, {"a"}, {"", "1"}};
  EXPECT_TRUE(Answers({1, 0, {"1"}}, compare));
  EXPECT_FALSE(Answers({1, 0, {}}, compare));
  EXPECT_FALSE(Answers({1, 0, {"1"}}, {Op::kSet, 1, 0, {"a"}, {"1"}}));
}

TEST(StoreMessageTest, RejectsInvalidBytes) {
  const std::string good = EncodeRequest({Op::kAdd, 1, 2, {"k"}, {}}).substr(4);
  EXPECT_TRUE(DecodeRequest(good));
  for (size_t size = 0; size < good.size(); ++size)
    EXPECT_FALSE(DecodeRequest(good.substr(0, size)));
  EXPECT_FALSE(DecodeRequest(good + "x"));
  EXPECT_FALSE(DecodeRequest(EncodeRequest({Op::kSet, 1, 0, {"k"}, {}}).substr(4)));
  EXPECT_FALSE(DecodeRequest(EncodeRequest({static_cast<Op>(99), 1, 0, {}, {}}).substr(4)));
  std::string huge = "\xff\xff\xff\x7f";
  EXPECT_THROW(TakeStoreMessage(huge), std::runtime_error);
}

}  // namespace
}  // namespace dslaunch::store_core_test
