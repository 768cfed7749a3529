#include "cli/session/event_gate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>

namespace dslaunch::event_gate_test {
namespace {

using ::testing::HasSubstr;
using Verdict = EventGate::Verdict;

pb::NodeEvent Notice(size_t bytes = 10) {
  pb::NodeEvent event;
  event.mutable_notice()->set_message(std::string(bytes, 'x'));
  return event;
}

pb::NodeEvent WorkerEnded(uint64_t attempt) {
  pb::NodeEvent event;
  event.mutable_worker_ended()->set_attempt(attempt);
  event.mutable_worker_ended()->set_last_lines(std::string(1'000, 'x'));
  return event;
}

class EventGateTest : public testing::Test {
 protected:
  // Number of events that are passed on unchanged, and number of events replaced by a notice.
  struct Taken {
    int as_they_are = 0;
    int replaced = 0;
  };
  Taken Send(int count, size_t bytes = 10) {
    Taken taken;
    for (int i = 0; i < count; ++i) {
      pb::NodeEvent event = Notice(bytes);
      const Result<Verdict> verdict = gate_.OnEvent(event, now_);
      EXPECT_TRUE(verdict.ok());
      if (!verdict.ok() || *verdict == Verdict::kLeaveOut) continue;
      const bool is_replaced = event.notice().message().starts_with("this node sends too many");
      ++(is_replaced ? taken.replaced : taken.as_they_are);
    }
    return taken;
  }

  Clock::time_point now_{std::chrono::seconds(1'000)};
  EventGate gate_{{.nodes = 1, .ranks = 4, .slots = 4}};
};

TEST_F(EventGateTest, AcceptsUsualNotices) { EXPECT_EQ(Send(100).as_they_are, 100); }

TEST_F(EventGateTest, ReplacesFloodOfNoticesByOneSentence) {
  const Taken first = Send(10'000);
  EXPECT_EQ(first.as_they_are, 200);
  EXPECT_EQ(first.replaced, 1);
  now_ += std::chrono::seconds(1);
  const Taken second = Send(10'000);
  EXPECT_EQ(second.as_they_are, 10);
  EXPECT_EQ(second.replaced, 1);
}

TEST_F(EventGateTest, LimitsNoticesOfWholeJob) {
  uint64_t bytes = 0;
  for (int i = 0; i < 20; ++i) {
    now_ += std::chrono::seconds(60);
    bytes +=
        static_cast<uint64_t>(Send(100, 2 * kMaxPeerTextBytes).as_they_are) * kMaxPeerTextBytes;
  }
  EXPECT_LE(bytes, EventGate::kMaxNoticeBytes);
}

TEST_F(EventGateTest, AcceptsManyAttemptsInARow) {
  for (uint64_t attempt = 1; attempt < 2'000; ++attempt) {
    now_ += milliseconds(60);
    for (int i = 0; i < 10; ++i) {
      pb::NodeEvent event = WorkerEnded(attempt);
      EXPECT_TRUE(gate_.OnEvent(event, now_).ok());
    }
  }
}

TEST_F(EventGateTest, FloodOfOtherEventsBreaksTheRules) {
  int taken = 0;
  Result<Verdict> verdict = Verdict::kTake;
  for (; verdict.ok() && taken < 100'000; ++taken) {
    pb::NodeEvent event = WorkerEnded(1);
    verdict = gate_.OnEvent(event, now_);
  }
  ASSERT_FALSE(verdict.ok());
  EXPECT_LT(taken, 2'000);
  EXPECT_EQ(verdict.error().message, "more events than any job has");
}

TEST_F(EventGateTest, AcceptsAnyAmountOfOutputAndHeartbeats) {
  for (int i = 0; i < 100'000; ++i) {
    pb::NodeEvent event;
    event.mutable_alive();
    EXPECT_TRUE(gate_.OnEvent(event, now_).ok());
    event.mutable_log()->set_data("x");
    EXPECT_TRUE(gate_.OnEvent(event, now_).ok());
  }
}

TEST_F(EventGateTest, LeavesOutSamplesThatArriveTooFast) {
  int taken = 0;
  for (int i = 0; i < 1'000; ++i) {
    pb::NodeEvent event;
    event.mutable_sample()->set_clock_us(1);
    const Result<Verdict> verdict = gate_.OnEvent(event, now_);
    ASSERT_TRUE(verdict.ok());
    if (*verdict == Verdict::kTake) ++taken;
  }
  EXPECT_EQ(taken, 20);
}

TEST_F(EventGateTest, AcceptsSamplesForAsLongAsJobRuns) {
  for (int i = 0; i < 100'000; ++i) {
    now_ += milliseconds(250);
    pb::NodeEvent event;
    event.mutable_sample()->set_device_trouble(std::string(4'000, 'x'));
    const Result<Verdict> verdict = gate_.OnEvent(event, now_);
    ASSERT_TRUE(verdict.ok() && *verdict == Verdict::kTake);
  }
}

TEST_F(EventGateTest, SampleOfUnknownRanksBreaksTheRules) {
  pb::NodeEvent event;
  event.mutable_sample()->add_ranks()->set_rank(4);  // rank 4 does not exist in a job of four ranks
  EXPECT_FALSE(gate_.OnEvent(event, now_).ok());
  event.mutable_sample()->clear_ranks();
  for (int i = 0; i < 2; ++i) event.mutable_sample()->add_ranks()->set_rank(1);
  EXPECT_FALSE(gate_.OnEvent(event, now_).ok());
  event.mutable_sample()->clear_ranks();
  event.mutable_sample()->add_devices()->set_power_w(NAN);
  EXPECT_FALSE(gate_.OnEvent(event, now_).ok());
}

TEST_F(EventGateTest, InvalidEventBreaksTheRules) {
  pb::NodeEvent event;
  event.mutable_worker_ended()->set_exit_code(256);
  const Result<Verdict> verdict = gate_.OnEvent(event, now_);
  ASSERT_FALSE(verdict.ok());
  EXPECT_THAT(verdict.error().message, HasSubstr("exit code = 256"));
}

}  // namespace
}  // namespace dslaunch::event_gate_test
