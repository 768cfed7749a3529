#include "cli/transport/transport_local.h"

#include <gmock/gmock.h>
#include <sys/socket.h>

#include <chrono>
#include <cstdlib>

namespace dslaunch::transport_local_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr milliseconds kPlenty{10000};

Result<std::unique_ptr<NodeLink>> Connect(const char* fault, milliseconds limit = kPlenty) {
  ::setenv("FAKE_AGENT", fault, 1);
  AgentBinary agent;
  agent.path = DSLAUNCH_FAKE_AGENT;
  return LocalTransport(agent).Connect({"local-1", "localhost", 0, ""}, Deadline::After(limit));
}

TEST(LocalTransportTest, ConnectsToAgentAndWaitsForItsEnd) {
  Result<std::unique_ptr<NodeLink>> link = Connect("");
  ASSERT_TRUE(link.ok()) << link.error().message;
  UniqueFd stream = (*link)->TakeFd();
  ASSERT_EQ(::send(stream.get(), "ping", 4, 0), 4);
  char reply[4];
  ASSERT_EQ(::recv(stream.get(), reply, 4, MSG_WAITALL), 4);
  EXPECT_EQ(std::string(reply, 4), "ping");
  EXPECT_EQ((*link)->Address(), "127.0.0.1");
  stream.Reset();
  EXPECT_TRUE((*link)->WaitEnd(Deadline::After(kPlenty)));
  EXPECT_TRUE((*link)->WaitEnd(Deadline::After(milliseconds(0)))) << "ended stays ended";
}

TEST(LocalTransportTest, AbortUnblocksReaderAndEndsAgent) {
  Result<std::unique_ptr<NodeLink>> link = Connect("");
  ASSERT_TRUE(link.ok()) << link.error().message;
  const UniqueFd stream = (*link)->TakeFd();
  (*link)->Abort("test");
  char byte = 0;
  EXPECT_EQ(::recv(stream.get(), &byte, 1, 0), 0);
  EXPECT_TRUE((*link)->WaitEnd(Deadline::After(kPlenty)));
}

TEST(LocalTransportTest, ErrorQuotesAgentThatDies) {
  const Result<std::unique_ptr<NodeLink>> link = Connect("dies");
  ASSERT_FALSE(link.ok());
  EXPECT_EQ(link.error().code, ExitCode::kUnavailable);
  EXPECT_THAT(link.error().message,
              AllOf(HasSubstr("node 'local-1'"), HasSubstr("the fake agent died")));
}

TEST(LocalTransportTest, FailsAtDeadlineIfAgentIsSilent) {
  const auto start = Clock::now();
  const Result<std::unique_ptr<NodeLink>> link = Connect("silent", milliseconds(300));
  EXPECT_LT(Clock::now() - start, milliseconds(1500));
  ASSERT_FALSE(link.ok());
  EXPECT_THAT(link.error().message, HasSubstr("in time"));
}

TEST(LocalTransportTest, ErrorNamesMissingAgent) {
  AgentBinary agent;
  agent.path = "/nonexistent/dslaunch-agent";
  const auto link =
      LocalTransport(agent).Connect({"local-1", "localhost", 0, ""}, Deadline::After(kPlenty));
  ASSERT_FALSE(link.ok());
  EXPECT_THAT(link.error().message,
              AllOf(HasSubstr("/nonexistent/dslaunch-agent"), HasSubstr("No such file")));
}

TEST(LocalTransportTest, StartsWithin25Milliseconds) {
  double best_ms = 1e9;
  for (int i = 0; i < 10; ++i) {
    const auto start = Clock::now();
    Result<std::unique_ptr<NodeLink>> link = Connect("");
    ASSERT_TRUE(link.ok()) << link.error().message;
    best_ms =
        std::min(best_ms, std::chrono::duration<double, std::milli>(Clock::now() - start).count());
    (*link)->TakeFd();
    (*link)->WaitEnd(Deadline::After(kPlenty));
  }
  EXPECT_LT(best_ms, 25);
  std::printf("fastest local start: %.2f ms\n", best_ms);
}

}  // namespace
}  // namespace dslaunch::transport_local_test
