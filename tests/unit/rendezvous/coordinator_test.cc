#include "rendezvous/coordinator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/rendezvous/coordinator_fixture.h"

namespace dslaunch::coordinator_test {
namespace {

using Phase = Coordinator::Phase;
using ::testing::HasSubstr;

class CoordinatorTest : public CoordinatorFixture {
 protected:
  CoordinatorTest() : CoordinatorFixture(NodesOf({"node1", "node2", "node3"})) {}

  void Start() {
    for (uint32_t node = 0; node < 3; ++node) Join(node);
    for (uint32_t node = 0; node < 3; ++node) Ready(node);
    ASSERT_EQ(coordinator_->phase(), Phase::kRunning);
  }
};

TEST_F(CoordinatorTest, AssignsRanksOnceAllHaveJoined) {
  EXPECT_TRUE(Join(2).empty());
  EXPECT_TRUE(Join(0).empty());
  const std::vector<Outgoing> out = Join(1);
  ASSERT_EQ(out.size(), 3u);
  for (const Outgoing& one : out) {
    ASSERT_TRUE(one.message.has_assignment());
    EXPECT_EQ(one.message.attempt(), 1u);
    EXPECT_EQ(one.message.assignment().first_rank(), (one.session - 1) * 2);
    EXPECT_EQ(one.message.assignment().world_size(), 6u);
    EXPECT_EQ(one.message.assignment().master_addr(), "10.0.0.1");
  }
}

TEST_F(CoordinatorTest, BarrierCostsOneMessageEachWayPerAgent) {
  for (uint32_t node = 0; node < 3; ++node) Join(node);
  EXPECT_TRUE(Ready(0).empty());
  EXPECT_TRUE(Ready(1).empty());
  EXPECT_EQ(Ready(2).size(), 3u);
  EXPECT_TRUE(Finished(2).empty());
  EXPECT_TRUE(Finished(0).empty());
  const std::vector<Outgoing> stop = Finished(1);
  ASSERT_EQ(stop.size(), 3u);
  EXPECT_EQ(stop[0].message.stop().cause().kind(), pb::Cause::NONE);
  EXPECT_TRUE(TornDown(0).empty());
  EXPECT_TRUE(TornDown(1).empty());
  const std::vector<Outgoing> closed = TornDown(2);
  ASSERT_EQ(closed.size(), 3u);
  for (const Outgoing& one : closed) {
    EXPECT_TRUE(one.message.completed().teardown_complete());
    EXPECT_TRUE(one.end_session);
  }
  EXPECT_EQ(coordinator_->phase(), Phase::kCompleted);
}

TEST_F(CoordinatorTest, ReportsToleratedLossOnceAndContinues) {
  Start();
  const std::vector<Outgoing> out = Killed(1, 3, /*tolerated=*/true);
  ASSERT_EQ(out.size(), 1u);
  EXPECT_EQ(out[0].message.notice().message(),
            "rank 3 (node2) was killed by SIGKILL; the job continues without it");
  EXPECT_EQ(out[0].session, 1u);
  EXPECT_TRUE(Killed(1, 3, true).empty());
  EXPECT_EQ(coordinator_->phase(), Phase::kRunning);
  EXPECT_EQ(Killed(1, 2, true).size(), 1u);
  Finished(1);
  Finished(0);
  const std::vector<Outgoing> stop = Finished(2);
  ASSERT_EQ(stop.size(), 3u);
  EXPECT_EQ(stop[0].message.stop().cause().kind(), pb::Cause::NONE);
}

TEST_F(CoordinatorTest, OrdersNodeToEndRankReportedAsLost) {
  Start();
  const std::vector<Outgoing> out = ReportLost(0, 3);
  ASSERT_EQ(out.size(), 1u);
  EXPECT_EQ(out[0].session, 2u);
  EXPECT_EQ(out[0].message.attempt(), 1u);
  EXPECT_EQ(out[0].message.end_rank().rank(), 3u);
  EXPECT_EQ(coordinator_->phase(), Phase::kRunning);
  EXPECT_TRUE(ReportLost(0, 6).empty());  // no node has rank 6
}

TEST_F(CoordinatorTest, ForwardsMpiBegunOnceToOtherNodes) {
  Start();
  const std::vector<Outgoing> out = BeginsMpi(1);
  ASSERT_EQ(out.size(), 2u);
  for (const Outgoing& one : out) {
    EXPECT_NE(one.session, 2u);
    EXPECT_TRUE(one.message.has_mpi_begun());
    EXPECT_EQ(one.message.attempt(), 1u);
  }
  EXPECT_TRUE(BeginsMpi(0).empty());
}

TEST_F(CoordinatorTest, OtherLossEndsJobAfterToleratedOne) {
  Start();
  Killed(1, 3, true);
  const Case stop = To(1, Killed(0, 0, false), Case::kStop);
  EXPECT_EQ(stop.stop().cause().rank(), 0);
  EXPECT_EQ(stop.stop().cause().exit_code(), 137);
}

TEST_F(CoordinatorTest, EndsAtOnceIfOnlyVictimsStillRan) {
  Start();
  Killed(1, 3, true);
  Killed(1, 2, true);
  Killed(2, 4, true);
  Killed(2, 5, true);
  EXPECT_EQ(To(1, Failed(0, 0, 69, /*victim=*/true), Case::kStop).attempt(), 0u);
  EXPECT_EQ(To(1, Failed(0, 1, 69, /*victim=*/true), Case::kStop).stop().cause().exit_code(), 69);
}

TEST_F(CoordinatorTest, NamesFirstRankAsCauseIfAllRanksAreLost) {
  Start();
  for (const int rank : {4, 0, 1, 2, 3}) {
    Killed(static_cast<uint32_t>(rank) / 2, rank, true);
    ASSERT_EQ(coordinator_->phase(), Phase::kRunning);
    Pass(2'000);
  }
  const Case stop = To(1, Killed(2, 5, true), Case::kStop);
  EXPECT_EQ(stop.stop().cause().kind(), pb::Cause::WORKER_SIGNAL);
  EXPECT_EQ(stop.stop().cause().rank(), 4);
}

TEST_F(CoordinatorTest, TimeLimitEndsJobAsItsCause) {
  CoordinatorOptions options = NodesOf({"node1", "node2", "node3"});
  options.timeouts.set_time_limit_ms(5'250);
  options.age = milliseconds(250);
  options.timeouts.set_dead_ms(60'000);
  options.policy.set_max_restarts(3);
  Begin(options);
  Start();
  Pass(4'900);
  EXPECT_TRUE(coordinator_->OnTick(now_).empty());
  Pass(100);
  const Case stop = To(1, coordinator_->OnTick(now_), Case::kStop);
  EXPECT_EQ(stop.stop().cause().kind(), pb::Cause::TIMED_OUT);
  EXPECT_EQ(stop.stop().cause().exit_code(), 75);
  EXPECT_THAT(stop.stop().cause().message(), HasSubstr("time limit of 5.25 s (--time_limit)"));
  Failed(1, 2, 143);  // a consequence of the stop
  TornDown(0);
  TornDown(1);
  const Case completed = To(1, TornDown(2), Case::kCompleted);
  EXPECT_EQ(completed.completed().cause().kind(), pb::Cause::TIMED_OUT);
}

TEST_F(CoordinatorTest, ReportsSavedOnlyIfAllNodesSaved) {
  for (const bool all : {true, false}) {
    Begin(NodesOf({"node1", "node2", "node3"}));
    Start();
    StopJob(0, pb::Cause::INTERRUPTED);
    for (const uint32_t node : {0u, 1u, 2u}) {
      pb::AgentMessage message = From(node);
      message.mutable_torn_down()->set_saved(all || node != 1);
      const std::vector<Outgoing> out = Log(message);
      if (node == 2) EXPECT_EQ(To(1, out, Case::kCompleted).completed().saved(), all);
    }
  }
}

TEST_F(CoordinatorTest, AllowsRanksToFinishBeforeAllAreReady) {
  for (uint32_t node = 0; node < 3; ++node) Join(node);
  Finished(0);
  Finished(1);
  const std::vector<Outgoing> out = Finished(2);
  ASSERT_EQ(out.size(), 6u);  // all nodes are ready, and immediately all have finished
  EXPECT_TRUE(out.back().message.has_stop());
}

TEST_F(CoordinatorTest, FirstFailureIsTheCauseForAllNodes) {
  Start();
  const std::vector<Outgoing> out = Failed(1, 3, 7);
  ASSERT_EQ(out.size(), 3u);
  EXPECT_EQ(out[0].message.stop().cause().exit_code(), 7);
  EXPECT_TRUE(Failed(2, 4, 9).empty());
  TornDown(0);
  TornDown(1);
  const std::vector<Outgoing> closed = TornDown(2);
  EXPECT_EQ(closed[0].message.completed().cause().rank(), 3);
}

TEST_F(CoordinatorTest, FailureStopsNodesThatHaveFinished) {
  Start();
  Finished(0);
  Finished(1);
  EXPECT_EQ(Failed(2, 5, 1).size(), 3u);
}

TEST_F(CoordinatorTest, DisconnectedAgentIsCauseAndNotAwaited) {
  Start();
  const std::vector<Outgoing> out = coordinator_->OnDisconnect(2, now_);
  ASSERT_EQ(out.size(), 2u);
  EXPECT_EQ(out[0].message.stop().cause().kind(), pb::Cause::NODE_LOST);
  EXPECT_EQ(out[0].message.stop().cause().exit_code(), 69);
  EXPECT_THAT(out[0].message.stop().cause().message(), HasSubstr("node2 was lost"));
  TornDown(0);
  const std::vector<Outgoing> closed = TornDown(2);
  ASSERT_EQ(closed.size(), 2u);
  EXPECT_FALSE(closed[0].message.completed().teardown_complete());
  EXPECT_EQ(closed[0].message.completed().missing_nodes(0), 1u);
}

TEST_F(CoordinatorTest, DisconnectBeforeTeardownFailsTheJob) {
  Start();
  for (uint32_t node = 0; node < 3; ++node) Finished(node);
  TornDown(0);
  TornDown(1);
  const std::vector<Outgoing> closed = coordinator_->OnDisconnect(3, now_);
  ASSERT_EQ(closed.size(), 2u);
  EXPECT_FALSE(closed[0].message.completed().teardown_complete());
  EXPECT_EQ(closed[0].message.completed().cause().kind(), pb::Cause::NODE_LOST);
}

TEST_F(CoordinatorTest, DisconnectAfterTheEndIsNotALoss) {
  Start();
  for (uint32_t node = 0; node < 3; ++node) Finished(node);
  for (uint32_t node = 0; node < 3; ++node) TornDown(node);
  EXPECT_TRUE(coordinator_->OnDisconnect(1, now_).empty());
}

TEST_F(CoordinatorTest, ReportsLostFrontEndIfAllConnectionsBroke) {
  Start();
  EXPECT_TRUE(FrontEndBreaksOff(1).empty());
  EXPECT_TRUE(FrontEndBreaksOff(2).empty());
  const std::vector<Outgoing> out = FrontEndBreaksOff(0);
  ASSERT_EQ(out.size(), 3u);
  for (const Outgoing& one : out) EXPECT_TRUE(one.message.has_no_front_end());
  EXPECT_EQ(coordinator_->phase(), Phase::kRunning) << "each node says what becomes of it";
}

TEST_F(CoordinatorTest, FrontEndIsAliveWithOneConnection) {
  Start();
  FrontEndBreaksOff(0);
  FrontEndBreaksOff(1);
  EXPECT_TRUE(FrontEndBreaksOff(1, /*is_broken=*/false).empty());
  EXPECT_TRUE(FrontEndBreaksOff(2).empty());
  EXPECT_TRUE(FrontEndBreaksOff(2, false).empty());
  EXPECT_TRUE(FrontEndBreaksOff(2, false).empty()) << "it was not broken";
}

TEST_F(CoordinatorTest, ReportsReconnectedNodesInOneNotice) {
  Start();
  FrontEndBreaksOff(1);
  FrontEndBreaksOff(1, /*is_broken=*/false);
  EXPECT_EQ(To(0, coordinator_->OnTick(now_), Case::kNotice).notice().message(),
            "the connection to node2 broke and was made again; nothing was lost");
  for (const uint32_t node : {1, 2}) FrontEndBreaksOff(node);
  for (const uint32_t node : {1, 2}) FrontEndBreaksOff(node, /*is_broken=*/false);
  EXPECT_EQ(To(0, coordinator_->OnTick(now_), Case::kNotice).notice().message(),
            "the connections to node2, node3 broke and were made again; nothing was lost");
  EXPECT_TRUE(coordinator_->OnTick(now_).empty());
}

TEST_F(CoordinatorTest, IgnoresLostNodesForFrontEndLoss) {
  CoordinatorOptions options = NodesOf({"node1", "node2", "node3"});
  options.policy.set_max_restarts(3);
  options.policy.set_min_nodes(2);
  Begin(options);
  Start();
  Vanish(2);
  FrontEndBreaksOff(0);
  EXPECT_TRUE(To(1, FrontEndBreaksOff(1), Case::kNoFrontEnd).has_no_front_end());
}

TEST_F(CoordinatorTest, LosesSilentNodeButNotOneWithHeartbeats) {
  Start();
  for (int second = 0; second < 5; ++second) {
    Pass(1'000);
    EXPECT_TRUE(coordinator_->OnTick(now_).empty());
  }
  Pass(900);
  pb::AgentMessage heartbeat = From(0);
  heartbeat.mutable_heartbeat();
  const std::vector<Outgoing> echo = coordinator_->OnMessage(1, heartbeat, now_);
  ASSERT_EQ(echo.size(), 1u);
  EXPECT_TRUE(echo[0].message.has_heartbeat());
  heartbeat.set_node_index(2);
  coordinator_->OnMessage(3, heartbeat, now_);
  EXPECT_TRUE(coordinator_->OnTick(now_).empty());
  Pass(100);
  const std::vector<Outgoing> out = coordinator_->OnTick(now_);
  ASSERT_FALSE(out.empty());
  EXPECT_EQ(out[0].message.stop().cause().node_index(), 1u);
  EXPECT_THAT(out[0].message.stop().cause().message(), HasSubstr("no heartbeat for 6 s"));
  EXPECT_EQ(out[0].session, 1u);
}

TEST_F(CoordinatorTest, LosesNoNodeAfterOwnStall) {
  Start();
  Pass(3'600'000);
  EXPECT_TRUE(coordinator_->OnTick(now_).empty());
  Pass(2'000);
  EXPECT_TRUE(coordinator_->OnTick(now_).empty());
}

TEST_F(CoordinatorTest, JoiningHasADeadline) {
  Join(0);
  Join(2);
  pb::AgentMessage heartbeat = From(0);
  heartbeat.mutable_heartbeat();
  Pass(29'999);
  coordinator_->OnMessage(1, heartbeat, now_);
  heartbeat.set_node_index(2);
  coordinator_->OnMessage(3, heartbeat, now_);
  EXPECT_TRUE(coordinator_->OnTick(now_).empty());
  Pass(1);
  const std::vector<Outgoing> out = coordinator_->OnTick(now_);
  ASSERT_EQ(out.size(), 2u);
  EXPECT_THAT(out[0].message.stop().cause().message(), HasSubstr("node2 did not join"));
}

TEST_F(CoordinatorTest, TeardownDeadlineExceedsTheNodesOwn) {
  Start();
  Failed(0, 0, 1);
  TornDown(0);
  for (int second = 0; second < 20; ++second) {
    Pass(1'000);
    for (uint32_t node = 0; node < 3; ++node) {
      pb::AgentMessage heartbeat = From(node);
      heartbeat.mutable_heartbeat();
      coordinator_->OnMessage(node + 1, heartbeat, now_);
    }
    EXPECT_TRUE(coordinator_->OnTick(now_).empty()) << "after " << second << " s";
  }
  Pass(1'001);
  for (uint32_t node = 0; node < 3; ++node) {
    pb::AgentMessage heartbeat = From(node);
    heartbeat.mutable_heartbeat();
    coordinator_->OnMessage(node + 1, heartbeat, now_);
  }
  const std::vector<Outgoing> closed = coordinator_->OnTick(now_);
  ASSERT_EQ(closed.size(), 3u);
  EXPECT_EQ(closed[0].message.completed().missing_nodes_size(), 2);
}

TEST_F(CoordinatorTest, RefusesInvalidJoins) {
  pb::AgentMessage other_job = From(0);
  other_job.set_job_id("another");
  other_job.mutable_join()->set_slots(2);
  pb::AgentMessage beyond = From(7);
  beyond.mutable_join()->set_slots(2);
  pb::AgentMessage other_slots = From(0);
  other_slots.mutable_join()->set_slots(3);
  pb::AgentMessage no_join = From(0);
  no_join.mutable_ready();
  SessionId session = 10;
  for (const pb::AgentMessage& message : {other_job, beyond, other_slots, no_join}) {
    const std::vector<Outgoing> out = coordinator_->OnMessage(session++, message, now_);
    ASSERT_EQ(out.size(), 1u) << message.ShortDebugString();
    EXPECT_TRUE(out[0].message.has_refused());
    EXPECT_TRUE(out[0].end_session);
  }
  EXPECT_TRUE(Join(0).empty());
  EXPECT_EQ(coordinator_
                ->OnMessage(
                    session,
                    [&] {
                      pb::AgentMessage duplicate = From(0);
                      duplicate.mutable_join()->set_slots(2);
                      return duplicate;
                    }(),
                    now_)[0]
                .message.refused()
                .cause()
                .message(),
            "the rendezvous refused node1: it has joined already");
}

TEST_F(CoordinatorTest, IgnoresMessagesOfAnotherAttempt) {
  Start();
  pb::AgentMessage old = From(0);
  old.set_attempt(0);
  old.mutable_finished();
  coordinator_->OnMessage(1, old, now_);
  Finished(1);
  EXPECT_TRUE(Finished(2).empty());  // node 1's message was about attempt 0, so it does not count
  EXPECT_EQ(coordinator_->phase(), Phase::kRunning);
}

TEST_F(CoordinatorTest, StopBeforeTheStartEndsTheJob) {
  Join(0);
  pb::AgentMessage stop = From(0);
  *stop.mutable_stop()->mutable_cause() =
      MakeCause(pb::Cause::INTERRUPTED, 0, ExitCode::kInterrupted, "Ctrl-C");
  EXPECT_EQ(coordinator_->OnMessage(1, stop, now_).size(), 1u);
  const std::vector<Outgoing> late = Join(1);
  ASSERT_EQ(late.size(), 1u);
  EXPECT_EQ(late[0].message.refused().cause().kind(), pb::Cause::INTERRUPTED);
}

}  // namespace
}  // namespace dslaunch::coordinator_test
