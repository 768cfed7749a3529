#include "trainer/comm/explain.h"

#include <gtest/gtest.h>

namespace dslaunch::explain_test {
namespace {

TEST(ExplainTest, RecognizesLostPeer) {
  for (const char* text : {"[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:547] Connection "
                           "closed by peer [10.0.0.1]:36778",
                           "[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:538] Read error "
                           "[10.0.0.1]:2487: Connection reset by peer",
                           "gloo: writev [10.0.0.1]:2487: Broken pipe",
                           "c10d: Failed to recv, got 0 bytes. Connection was likely closed. Did "
                           "the remote server shutdown or crash?"}) {
    EXPECT_EQ(ClassifyCommFailure(text), CommFailure::kPeerLost) << text;
  }
}

TEST(ExplainTest, RecognizesTimeout) {
  for (const char* text : {"[/pytorch/third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:81] "
                           "Timed out waiting 600000ms for recv",
                           "c10d: wait timeout after 300000ms, keys: /gloo/0/rank_2",
                           "The client socket has timed out after 300000ms while trying to connect "
                           "to (10.0.0.1, 29500)."}) {
    EXPECT_EQ(ClassifyCommFailure(text), CommFailure::kTimedOut) << text;
  }
}

TEST(ExplainTest, OtherErrorsAreNotCommFailures) {
  EXPECT_EQ(ClassifyCommFailure("mat1 and mat2 shapes cannot be multiplied (64x784 and 100x10)"),
            CommFailure::kNone);
  EXPECT_EQ(ClassifyCommFailure("Connection reset by peer"),
            CommFailure::kNone);  // not a message of Gloo
  EXPECT_EQ(ClassifyCommFailure(""), CommFailure::kNone);
}

TEST(ExplainTest, RecognizesParametersThatAreNotGathered) {
  const std::string text = std::string("the parameters of restored.socket") + kNotGathered;
  EXPECT_TRUE(IsNotGathered(text));
  EXPECT_EQ(ClassifyCommFailure(text), CommFailure::kNone);
  EXPECT_FALSE(IsOutOfMemory(text));
  EXPECT_FALSE(IsNotGathered("setStorage: sizes [64, 64] are out of bounds"));
}

}  // namespace
}  // namespace dslaunch::explain_test
