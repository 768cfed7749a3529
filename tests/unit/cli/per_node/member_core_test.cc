// Tests the decisions of a node's own command, without a loop, a network or an agent.
#include "cli/per_node/member_core.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "proto/wire/cause.h"

namespace dslaunch::member_core_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

class MemberCoreTest : public testing::Test {
 protected:
  static MemberCoreOptions Options() {
    MemberCoreOptions options;
    options.host = "head";
    options.port = 29'500;
    options.join_timeout = milliseconds(60'000);
    options.end_timeout = milliseconds(30'000);
    options.request.set_min_nodes(1);
    options.request.set_max_nodes(2);
    return options;
  }

  MemberCore& core() {
    if (!core_) core_.emplace(options_, now_);
    return *core_;
  }
  void Keep(MemberActions actions) { actions_ = std::move(actions); }
  template <class Action>
  std::vector<Action> All() const {
    std::vector<Action> found;
    for (const MemberAction& action : actions_) {
      if (const auto* one = std::get_if<Action>(&action)) found.push_back(*one);
    }
    return found;
  }
  std::vector<pb::NodeMessage::MessageCase> Sent() const {
    std::vector<pb::NodeMessage::MessageCase> kinds;
    for (const member_action::Send& send : All<member_action::Send>())
      kinds.push_back(send.message.message_case());
    return kinds;
  }
  std::string Logged() const {
    std::string text;
    for (const member_action::Log& line : All<member_action::Log>()) text += line.text + "\n";
    return text;
  }
  std::optional<int> ExitCode() const {
    const auto ends = All<member_action::End>();
    return ends.empty() ? std::nullopt : std::optional(ends[0].exit_code);
  }
  std::optional<milliseconds> Timer(MemberTimer timer) const {
    std::optional<milliseconds> delay;
    for (const member_action::SetTimer& set : All<member_action::SetTimer>()) {
      if (set.timer == timer) delay = std::chrono::duration_cast<milliseconds>(set.when - now_);
    }
    return delay;
  }

  // Each of these functions keeps only the actions of its last call to the core.
  void Receive(const pb::NodeMessage& message) { Keep(core().OnMessage(message, now_)); }
  void Close(const std::string& why = "end of file") { Keep(core().OnClosed(why, now_)); }
  void Signal(int signal_number) { Keep(core().OnSignal(signal_number, now_)); }
  void Expire(MemberTimer timer, bool reader_makes_progress = false) {
    Keep(core().OnTimer(timer, reader_makes_progress, now_));
  }
  void Connect() {
    Keep(core().Start());
    Keep(core().OnDialed(std::nullopt, now_));
  }
  void StartAgent() {
    Connect();
    pb::NodeMessage message;
    message.mutable_accepted()->set_name("node1");
    Receive(message);
    EXPECT_THAT(All<member_action::StartAgent>(), SizeIs(1));
    Keep(core().OnAgentStarted({}, now_));
  }
  void StartRanks() {
    StartAgent();
    pb::NodeEvent event;
    event.mutable_started()->add_pids(1);
    event.mutable_started()->add_pids(2);
    Keep(core().OnEvent(event, now_));
  }
  void EndJob(int exit_code) {
    pb::NodeMessage message;
    message.mutable_job_ended()->set_exit_code(exit_code);
    message.mutable_job_ended()->set_message("it is over");
    Receive(message);
  }

  MemberCoreOptions options_ = Options();
  Clock::time_point now_{std::chrono::hours(1)};
  std::optional<MemberCore> core_;
  MemberActions actions_;
};

TEST_F(MemberCoreTest, RetriesWithGrowingPausesUntilTimeout) {
  Keep(core().Start());
  EXPECT_THAT(All<member_action::Dial>(), SizeIs(1));
  const DialFailure refused = {DialFailure::Kind::kUnreachable, "connection refused"};
  for (const int pause : {100, 200, 400, 800, 1'600, 2'000, 2'000}) {
    Keep(core().OnDialed(refused, now_));
    EXPECT_EQ(Timer(MemberTimer::kDial), milliseconds(pause));
    Expire(MemberTimer::kDial);
    EXPECT_THAT(All<member_action::Dial>(), SizeIs(1));
  }
  EXPECT_THAT(Logged(), IsEmpty()) << "the same failure is logged once";
  now_ += milliseconds(60'000);
  Keep(core().OnDialed(refused, now_));
  EXPECT_EQ(ExitCode(), 75);
  EXPECT_THAT(Logged(), HasSubstr("head:29500) was not reachable within 60 s"));
}

TEST_F(MemberCoreTest, EndsOnWrongToken) {
  Keep(core().Start());
  Keep(core().OnDialed(DialFailure{DialFailure::Kind::kWrongToken, "another token"}, now_));
  EXPECT_EQ(ExitCode(), 77);
  EXPECT_THAT(core().OnSignal(SIGINT, now_), IsEmpty()) << "nothing follows";
}

TEST_F(MemberCoreTest, EndsIfAnotherProgramListens) {
  Connect();
  Close("it does not use dslaunch's protocol");
  EXPECT_EQ(ExitCode(), 69);
  EXPECT_THAT(Logged(), HasSubstr("is not dslaunch's node 0"));
}

TEST_F(MemberCoreTest, ReconnectsBeforeItHasAPlace) {
  Connect();
  EXPECT_THAT(Sent(), ElementsAre(pb::NodeMessage::kRequest));
  Close();
  EXPECT_EQ(ExitCode(), std::nullopt);
  EXPECT_NE(Timer(MemberTimer::kDial), std::nullopt);
}

TEST_F(MemberCoreTest, EndsWithExitCodeOfRefusal) {
  Connect();
  pb::NodeMessage message;
  message.mutable_refused()->set_exit_code(64);
  message.mutable_refused()->set_message("one too many");
  Receive(message);
  EXPECT_EQ(ExitCode(), 64);
}

TEST_F(MemberCoreTest, ReportsStartedAgentAndServesIt) {
  StartAgent();
  EXPECT_THAT(Sent(), ElementsAre(pb::NodeMessage::kAgentUp));
  EXPECT_THAT(All<member_action::ServeAgent>(), SizeIs(1));
}

TEST_F(MemberCoreTest, ReportsAgentThatCannotStart) {
  Connect();
  pb::NodeMessage message;
  message.mutable_accepted()->set_name("node1");
  Receive(message);
  Keep(core().OnAgentStarted(Error{ExitCode::kIo, "node1: the disk is full"}, now_));
  EXPECT_THAT(Sent(), ElementsAre(pb::NodeMessage::kAgentFailed));
  EXPECT_EQ(ExitCode(), std::nullopt) << "node 0 decides";
}

TEST_F(MemberCoreTest, EndsStreamOnceOutputIsShown) {
  StartRanks();
  pb::NodeMessage message;
  message.mutable_stream_end();
  Receive(message);
  EXPECT_THAT(All<member_action::RenewLease>(), SizeIs(1));
  EXPECT_THAT(All<member_action::EndStream>(), IsEmpty());
  core().OnShown();
  Expire(MemberTimer::kGoodbye);
  EXPECT_THAT(All<member_action::EndStream>(), SizeIs(1));
  EXPECT_THAT(All<member_action::AwaitAgentEnd>(), SizeIs(1));
}

TEST_F(MemberCoreTest, EndsStreamOfStalledReaderAfterThreeSeconds) {
  StartRanks();
  pb::NodeMessage message;
  message.mutable_stream_end();
  Receive(message);
  now_ += milliseconds(3'000);
  Expire(MemberTimer::kGoodbye, /*reader_makes_progress=*/true);
  EXPECT_THAT(All<member_action::EndStream>(), IsEmpty());
  Expire(MemberTimer::kGoodbye);
  EXPECT_THAT(All<member_action::EndStream>(), SizeIs(1));
  EXPECT_THAT(Logged(), HasSubstr("the end of the output was not shown"));
}

TEST_F(MemberCoreTest, EndsAsTheJobAfterItsAgent) {
  StartRanks();
  EndJob(7);
  EXPECT_EQ(ExitCode(), std::nullopt) << "its agent runs";
  Keep(core().OnAgentStreamEnd(now_));
  Keep(core().OnAgentEnded("", now_));
  EXPECT_EQ(ExitCode(), 7);
  EXPECT_THAT(Logged(), HasSubstr("it is over; exit code 7, see node 0"));
}

TEST_F(MemberCoreTest, StopsAgentWhenNodeZeroIsLost) {
  StartRanks();
  Close();
  EXPECT_THAT(All<member_action::CloseStream>(), SizeIs(1));
  EXPECT_EQ(Timer(MemberTimer::kLimit), milliseconds(30'000));
  Keep(core().OnAgentEnded("", now_));
  EXPECT_EQ(ExitCode(), 69);
}

TEST_F(MemberCoreTest, EndsSoonIfAgentReportsLostNodeZero) {
  StartRanks();
  pb::NodeEvent event;
  *event.mutable_outcome()->mutable_cause() =
      MakeCause(pb::Cause::NODE_LOST, 0, ExitCode::kUnavailable, "node0 was lost");
  Keep(core().OnEvent(event, now_));
  Keep(core().OnAgentStreamEnd(now_));
  Keep(core().OnAgentEnded("", now_));
  EXPECT_EQ(Timer(MemberTimer::kLimit), milliseconds(5'000));
  Expire(MemberTimer::kLimit);
  EXPECT_EQ(ExitCode(), 69);
}

TEST_F(MemberCoreTest, InterruptStopsJobAndSecondKills) {
  StartRanks();
  Signal(SIGINT);
  ASSERT_THAT(All<member_action::StopAgent>(), SizeIs(1));
  EXPECT_EQ(All<member_action::StopAgent>()[0].cause.kind(), pb::Cause::INTERRUPTED);
  EXPECT_FALSE(All<member_action::StopAgent>()[0].kill_now);
  Signal(SIGINT);
  EXPECT_THAT(actions_, IsEmpty()) << "two within 100 ms are one";
  now_ += milliseconds(200);
  Signal(SIGINT);
  ASSERT_THAT(All<member_action::StopAgent>(), SizeIs(1));
  EXPECT_TRUE(All<member_action::StopAgent>()[0].kill_now);
}

TEST_F(MemberCoreTest, SigtermLeavesElasticJob) {
  StartRanks();
  Signal(SIGTERM);
  ASSERT_THAT(All<member_action::StopAgent>(), SizeIs(1));
  EXPECT_EQ(All<member_action::StopAgent>()[0].cause.kind(), pb::Cause::NODE_LEFT);
  pb::NodeEvent event;
  for (int rank = 0; rank < 2; ++rank) {
    event.mutable_worker_ended()->set_exit_code(85);
    Keep(core().OnEvent(event, now_));
  }
  event.mutable_done();
  Keep(core().OnEvent(event, now_));
  EXPECT_THAT(All<member_action::CloseStream>(), SizeIs(1));
  Keep(core().OnAgentEnded("", now_));
  EXPECT_EQ(ExitCode(), 85);
  EXPECT_THAT(Logged(), HasSubstr("every rank of this node has saved its state"));
}

TEST_F(MemberCoreTest, InterruptBeforePlaceEndsAtOnce) {
  Connect();
  Signal(SIGINT);
  EXPECT_EQ(ExitCode(), 130);
}

// The first agent was killed, and node 0 requests another agent. The limit for the first agent's
// end must not end the second agent.
TEST_F(MemberCoreTest, LimitOfEndedAgentDoesNotEndTheNext) {
  StartRanks();
  Keep(core().OnAgentStreamEnd(now_));
  Keep(core().OnAgentEnded("", now_));
  now_ += milliseconds(29'000);
  pb::NodeMessage message;
  message.mutable_accepted()->set_name("node1");
  Receive(message);
  now_ += milliseconds(1'000);
  Expire(MemberTimer::kLimit);
  EXPECT_THAT(actions_, IsEmpty()) << "its start is under way";
  Keep(core().OnAgentStarted({}, now_));
  Expire(MemberTimer::kLimit);
  EXPECT_THAT(actions_, IsEmpty());
}

TEST_F(MemberCoreTest, WaitsForNextAgentUnlessJobHasEnded) {
  for (const bool is_completed : {false, true}) {
    core_.reset();
    StartRanks();
    pb::NodeEvent event;
    *event.mutable_outcome()->mutable_cause() =
        MakeCause(pb::Cause::NODE_LOST, 1, ExitCode::kUnavailable, "its supervisor was killed");
    Keep(core().OnEvent(event, now_));
    event.mutable_done()->set_completed(is_completed);
    Keep(core().OnEvent(event, now_));
    Keep(core().OnAgentStreamEnd(now_));
    Keep(core().OnAgentEnded("", now_));
    Expire(MemberTimer::kLimit);
    EXPECT_EQ(ExitCode(), is_completed ? std::optional(75) : std::nullopt);
  }
}

TEST_F(MemberCoreTest, EndsWithoutReportAfterLimit) {
  StartRanks();
  Keep(core().OnAgentStreamEnd(now_));
  now_ += milliseconds(30'000);
  Expire(MemberTimer::kLimit, /*reader_makes_progress=*/true);
  EXPECT_EQ(ExitCode(), std::nullopt);
  Expire(MemberTimer::kLimit);
  EXPECT_EQ(ExitCode(), 75);
}

}  // namespace
}  // namespace dslaunch::member_core_test
