#include "rendezvous/agent_gate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "proto/wire/cause.h"

namespace dslaunch::agent_gate_test {
namespace {

using ::testing::HasSubstr;

pb::AgentMessage Failed(uint64_t attempt) {
  pb::AgentMessage message;
  message.set_attempt(attempt);
  *message.mutable_worker_failed()->mutable_cause() =
      MakeCause(pb::Cause::WORKER_EXIT, 1, ExitCode::kInternal, "");
  return message;
}

pb::AgentMessage Heartbeat() {
  pb::AgentMessage message;
  message.mutable_heartbeat();
  return message;
}

class AgentGateTest : public testing::Test {
 protected:
  std::string Send(pb::AgentMessage message) {
    const Result<void> taken = gate_.OnMessage(message, now_);
    return taken.ok() ? "" : taken.error().message;
  }

  Clock::time_point now_{std::chrono::seconds(1'000)};
  AgentGate gate_{{.nodes = 2, .ranks = 4, .slots = 2}};
};

TEST_F(AgentGateTest, AcceptsOneFailurePerRankAndAttempt) {
  for (uint64_t attempt = 1; attempt < 1'000; ++attempt) {
    EXPECT_EQ(Send(Failed(attempt)), "");
    EXPECT_EQ(Send(Failed(attempt)), "");
    now_ += milliseconds(50);
  }
  EXPECT_EQ(Send(Failed(999)), "more messages than any job has");
}

TEST_F(AgentGateTest, AcceptsEndlessHeartbeatsButNoFlood) {
  for (int i = 0; i < 100'000; ++i) {
    ASSERT_EQ(Send(Heartbeat()), "");
    now_ += milliseconds(10);
  }
  std::string why;
  for (int i = 0; i < 2'000 && why.empty(); ++i) why = Send(Heartbeat());
  EXPECT_EQ(why, "more messages than any job has");
}

TEST_F(AgentGateTest, RejectsStopsAfter100) {
  pb::AgentMessage stop;
  *stop.mutable_stop()->mutable_cause() =
      MakeCause(pb::Cause::INTERRUPTED, 0, ExitCode::kInterrupted, "interrupted");
  int taken = 0;
  while (taken < 1'000 && Send(stop).empty()) {
    ++taken;
    now_ += std::chrono::seconds(1);
  }
  EXPECT_EQ(taken, 100);
}

TEST_F(AgentGateTest, RejectsInvalidMessages) {
  pb::AgentMessage failed = Failed(1);
  failed.mutable_worker_failed()->mutable_cause()->set_exit_code(0);
  EXPECT_THAT(Send(failed), HasSubstr("exit code of a failure = 0"));
}

}  // namespace
}  // namespace dslaunch::agent_gate_test
