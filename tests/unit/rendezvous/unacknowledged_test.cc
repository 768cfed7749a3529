#include "rendezvous/unacknowledged.h"

#include <gtest/gtest.h>

#include "proto/rendezvous.pb.h"

namespace dslaunch::unacknowledged_test {
namespace {

TEST(UnacknowledgedTest, KeepsMessagesUntilAcknowledged) {
  Unacknowledged<pb::AgentMessage> sent;
  for (uint64_t number = 1; number <= 3; ++number) {
    pb::AgentMessage message;
    sent.Keep(message);
    EXPECT_EQ(message.number(), number);
  }
  sent.Acknowledge(2);
  ASSERT_EQ(sent.kept().size(), 1u);
  EXPECT_EQ(sent.kept().front().number(), 3u);
  sent.Acknowledge(1);  // an acknowledgement that is older than the last
  EXPECT_EQ(sent.kept().size(), 1u);
}

TEST(UnacknowledgedTest, AcceptsEachMessageOnce) {
  ReceivedNumbers received;
  EXPECT_TRUE(received.Accept(1));
  EXPECT_TRUE(received.Accept(0));
  EXPECT_TRUE(received.Accept(2));
  EXPECT_FALSE(received.Accept(1));
  EXPECT_FALSE(received.Accept(2));
  EXPECT_EQ(received.newest(), 2u);
}

}  // namespace
}  // namespace dslaunch::unacknowledged_test
