// Tests the Coordinator's attempts: its reactions to failures when the job may continue.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/rendezvous/coordinator_fixture.h"

namespace dslaunch::attempts_test {
namespace {

using Phase = Coordinator::Phase;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr Clock::time_point kLate(milliseconds(20'000));

// A job with the nodes 0 to 2 and the spare node 3. Two to three nodes run the job, which may be
// restarted twice.
class ElasticTest : public CoordinatorFixture {
 protected:
  ElasticTest() : CoordinatorFixture(Options()) {}

  static CoordinatorOptions Options() {
    CoordinatorOptions options = NodesOf({"node0", "node1", "node2", "node3"});
    options.nodes[3].set_spare(true);
    options.timeouts.set_suspect_ms(3'000);
    options.policy.set_max_restarts(2);
    options.policy.set_min_nodes(2);
    options.policy.set_max_nodes(3);
    return options;
  }
  // Advances the clock by up to `ms`, while the nodes in `alive` send heartbeats, until a tick
  // sends messages. Returns these messages.
  std::vector<Outgoing> PassWith(int ms, const std::vector<uint32_t>& alive) {
    std::vector<Outgoing> out;
    for (; ms > 0 && out.empty(); ms -= 500) {
      Pass(500);
      for (const uint32_t node : alive) Beat(node);
      out = coordinator_->OnTick(now_);
    }
    return out;
  }
  void Start() {
    for (uint32_t node = 0; node < 4; ++node) Join(node);
    for (uint32_t node = 0; node < 3; ++node) Ready(node);
    ASSERT_EQ(coordinator_->phase(), Phase::kRunning);
  }

  // Returns the nodes that get ranks by these messages; empty if there is no assignment.
  static std::vector<uint32_t> Assigned(const std::vector<Outgoing>& out) {
    for (const Outgoing& one : out) {
      if (one.message.has_assignment()) return IndexesOf(one.message.assignment().members());
    }
    return {};
  }
  static std::string Notices(const std::vector<Outgoing>& out) {
    std::string text;
    for (const Outgoing& one : out) {
      if (one.message.has_notice()) text += one.message.notice().message() + "\n";
    }
    return text;
  }
};

TEST_F(ElasticTest, FailedRankDrainsAllAndStartsNextAttempt) {
  Start();
  PassWith(500, {0, 1, 2, 3});
  const std::vector<Outgoing> drain = Failed(1, 3, 7);
  ASSERT_EQ(drain.size(), 4u);  // including the drain of the spare
  for (const Outgoing& one : drain) {
    EXPECT_EQ(one.message.attempt(), 1u);
    EXPECT_EQ(one.message.drain().cause().rank(), 3);
    EXPECT_EQ(one.message.drain().reason(), "restart 1 of 2");
  }
  for (const uint32_t node : {3, 2, 1}) EXPECT_TRUE(Drained(node).empty());
  const std::vector<Outgoing> form = Drained(0, 31'000);
  EXPECT_THAT(Assigned(form), ElementsAre(0, 1, 2));
  EXPECT_EQ(coordinator_->attempt(), 2u);
  const Case own = To(0, form, Case::kAssignment);
  EXPECT_EQ(own.assignment().restart_count(), 1u);
  // The port that was reserved for the new attempt.
  EXPECT_EQ(own.assignment().master_port(), 31'000u);
  for (uint32_t node = 0; node < 3; ++node) Finished(node);
  for (uint32_t node = 0; node < 3; ++node) EXPECT_TRUE(TornDown(node).empty());
  const std::vector<Outgoing> closed = TornDown(3);
  ASSERT_EQ(closed.size(), 4u);
  EXPECT_TRUE(closed[0].message.completed().teardown_complete());
  EXPECT_EQ(closed[0].message.completed().cause().kind(), pb::Cause::NONE);
}

TEST_F(ElasticTest, SpareReplacesLostNodeUntilSuccess) {
  Start();
  EXPECT_EQ(To(0, Vanish(1), Case::kDrain).drain().cause().kind(), pb::Cause::NODE_LOST);
  Drained(0);
  Drained(2);
  const std::vector<Outgoing> form = Drained(3);
  EXPECT_THAT(Assigned(form), ElementsAre(0, 2, 3));
  EXPECT_THAT(Notices(form), HasSubstr("attempt 2: node0, node2, node3 get ranks; without node1"));
  for (const uint32_t node : {0, 2, 3}) Finished(node);
  TornDown(0);
  TornDown(2);
  const std::vector<Outgoing> closed = TornDown(3);
  EXPECT_TRUE(closed[0].message.completed().teardown_complete());
  EXPECT_EQ(closed[0].message.completed().cause().kind(), pb::Cause::NONE);
  EXPECT_THAT(IndexesOf(closed[0].message.completed().members()), ElementsAre(0, 2, 3));
}

TEST_F(ElasticTest, SpareReplacesUnfitNodeUntilItsCheckSucceeds) {
  Start();
  Failed(0, 1, 7);
  for (const uint32_t node : {0, 2, 3}) Drained(node);
  const std::vector<Outgoing> form = Drained(1, 31'000, "health command: it ended with 3");
  EXPECT_THAT(Assigned(form), ElementsAre(0, 2, 3));
  EXPECT_THAT(Notices(form),
              HasSubstr("node1 is unfit for the next attempt: health command: it ended with 3"));
  for (const uint32_t node : {0, 2, 3}) Ready(node);
  Failed(0, 1, 7);
  for (const uint32_t node : {0, 1, 2}) Drained(node);
  EXPECT_THAT(Assigned(Drained(3)), ElementsAre(0, 1, 2));
}

TEST_F(ElasticTest, AllowsTimeOfCheckForDraining) {
  CoordinatorOptions options = Options();
  options.timeouts.set_check_ms(40'000);
  Begin(options);
  Start();
  Failed(0, 1, 7);
  for (const uint32_t node : {0, 2, 3}) Drained(node);
  EXPECT_THAT(PassWith(60'500, {0, 1, 2, 3}), IsEmpty());
  EXPECT_THAT(Notices(PassWith(1'000, {0, 1, 2, 3})),
              HasSubstr("attempt 2: node0, node2, node3 get ranks; without node1"));
}

TEST_F(ElasticTest, ContinuesWithFewerNodesWaitsThenFails) {
  Start();
  Vanish(1);
  Vanish(3);
  Drained(0);
  EXPECT_THAT(Assigned(Drained(2)), ElementsAre(0, 2));
  Vanish(2);
  EXPECT_THAT(Drained(0), IsEmpty());
  EXPECT_EQ(coordinator_->phase(), Phase::kWaiting);
  EXPECT_THAT(PassWith(29'500, {0}), IsEmpty());
  const std::vector<Outgoing> end = PassWith(1'000, {0});
  EXPECT_THAT(Notices(end), HasSubstr("only 1 of at least 2 nodes are available"));
  EXPECT_TRUE(To(0, end, Case::kStop).has_stop());
  EXPECT_EQ(To(0, end, Case::kStop).stop().cause().kind(), pb::Cause::NODE_LOST);
  EXPECT_EQ(To(0, end, Case::kStop).stop().cause().node_index(), 2u);
}

TEST_F(ElasticTest, AcceptsNodeThatReturnsOnNewConnection) {
  Start();
  Vanish(1);
  Vanish(2);
  Vanish(3);
  Drained(0);
  EXPECT_THAT(Assigned(Rejoin(2, 20)), ElementsAre(0, 2));
}

TEST_F(ElasticTest, JoiningNodeWaitsForNextRestart) {
  CoordinatorOptions options = Options();
  options.absent_nodes = {1, 3};
  Begin(options);
  Join(0);
  const std::vector<Outgoing> form = Join(2);
  EXPECT_THAT(Assigned(form), ElementsAre(0, 2));
  EXPECT_THAT(Notices(form), HasSubstr("without node1"));
  EXPECT_THAT(Notices(Join(1)), HasSubstr("node1 joined; it may get ranks at the next restart"));
  Failed(2, 2, 7);
  Drained(0);
  Drained(1);
  EXPECT_THAT(Assigned(Drained(2)), ElementsAre(0, 1, 2));
}

TEST_F(ElasticTest, NamesOnJoinForNodeThatGetsNoRanks) {
  CoordinatorOptions options = Options();
  options.absent_nodes = {1, 3};
  options.policy.set_max_restarts(0);
  Begin(options);
  Join(0);
  Join(2);
  EXPECT_THAT(Notices(Join(1)),
              AllOf(HasSubstr("node1 joined, but gets no ranks"), HasSubstr("--on_join now")));
}

TEST_F(ElasticTest, DrainsForJoiningNodeWithoutCountingRestart) {
  CoordinatorOptions options = Options();
  options.absent_nodes = {1, 3};
  options.policy.set_on_join(pb::Policy::AT_ONCE);
  Begin(options);
  Join(0);
  Join(2);
  Ready(0);
  Ready(2);
  const std::vector<Outgoing> drain = Join(1);
  EXPECT_EQ(To(0, drain, Case::kDrain).drain().reason(), "node1 joined");
  EXPECT_EQ(To(0, drain, Case::kDrain).drain().cause().kind(), pb::Cause::NONE);
  Drained(0);
  Drained(1);
  const std::vector<Outgoing> form = Drained(2);
  EXPECT_THAT(Assigned(form), ElementsAre(0, 1, 2));
  EXPECT_EQ(To(0, form, Case::kAssignment).assignment().restart_count(), 0u);
  EXPECT_THAT(Join(3), IsEmpty());  // three nodes are enough
}

TEST_F(ElasticTest, DoesNotDrainForJoinerOnceANodeIsDone) {
  CoordinatorOptions options = Options();
  options.absent_nodes = {1, 3};
  options.policy.set_on_join(pb::Policy::AT_ONCE);
  Begin(options);
  Join(0);
  Join(2);
  Ready(0);
  Finished(2);
  EXPECT_FALSE(To(0, Join(1), Case::kDrain).has_drain());
}

TEST_F(ElasticTest, RefusesEveryMessageOfAFencedNode) {
  Start();
  Finished(0);
  const std::vector<Outgoing> suspect = PassWith(3'500, {0, 2, 3});
  EXPECT_EQ(Notices(suspect), "no heartbeat from node1 for 3 s; after 6 s it counts as lost\n");
  const std::vector<Outgoing> lost = PassWith(3'500, {0, 2, 3});
  EXPECT_TRUE(To(1, lost, Case::kRefused).has_refused());
  EXPECT_THAT(To(1, lost, Case::kRefused).refused().cause().message(),
              HasSubstr("node1 was lost: no heartbeat for 6 s; it is no longer part of the job"));
  EXPECT_TRUE(To(0, lost, Case::kDrain).has_drain());
  for (const auto& say : {Finished(1), TornDown(1), Drained(1), Beat(1)}) {
    ASSERT_EQ(say.size(), 1u);
    EXPECT_TRUE(say[0].message.has_refused());
    EXPECT_TRUE(say[0].end_session);
    EXPECT_EQ(say[0].session, 2u);
  }
  // A node that reconnects takes part in the next attempt.
  Rejoin(1, 20);
  Drained(0);
  Drained(2);
  EXPECT_THAT(Assigned(Drained(3)), ElementsAre(0, 1, 2));
  EXPECT_EQ(coordinator_->OnDisconnect(2, now_).size(), 0u);  // end of the node's old connection
  EXPECT_EQ(coordinator_->phase(), Phase::kStarting);
}

TEST_F(ElasticTest, ReportsHeartbeatAfterSuspicion) {
  Start();
  PassWith(3'500, {0, 2, 3});
  EXPECT_EQ(Notices(Beat(1)), "node1 sends heartbeats again, after 3 s\n");
}

TEST_F(ElasticTest, SuspectsNoNodeAfterOwnStall) {
  Start();
  now_ += milliseconds(4'000);  // more than half of dead_ms
  EXPECT_THAT(coordinator_->OnTick(now_), IsEmpty());
  now_ += milliseconds(2'900);  // more than half of suspect_ms
  EXPECT_THAT(coordinator_->OnTick(now_), IsEmpty());
}

TEST_F(ElasticTest, IgnoresMessagesAboutOlderAttempts) {
  Start();
  pb::AgentMessage old = From(0);
  old.mutable_worker_failed()->mutable_cause()->set_kind(pb::Cause::WORKER_EXIT);
  Failed(1, 3, 7);
  for (uint32_t node = 0; node < 4; ++node) Drained(node);
  ASSERT_EQ(coordinator_->attempt(), 2u);
  for (uint32_t node = 0; node < 3; ++node) Ready(node);
  std::vector<Outgoing> answers = Log(old);
  old.mutable_finished();
  for (uint32_t node = 0; node < 3; ++node) {
    old.set_node_index(node);
    for (Outgoing& answer : Log(old)) answers.push_back(std::move(answer));
  }
  ASSERT_THAT(answers, SizeIs(4));
  for (const Outgoing& answer : answers) {
    EXPECT_EQ(answer.message.attempt(), 2u);
    EXPECT_EQ(answer.message.outdated().attempt(), 1u);
    EXPECT_FALSE(answer.end_session);
  }
  EXPECT_EQ(answers[0].message.outdated().what(), "worker_failed");
  EXPECT_EQ(answers[3].message.outdated().what(), "finished");
  EXPECT_EQ(coordinator_->phase(), Phase::kRunning);
}

TEST_F(ElasticTest, RefusesAgentThatReportsForeignRanks) {
  Start();
  const Case refused = To(1, Failed(1, 9, 7), Case::kRefused);
  EXPECT_EQ(refused.refused().cause().kind(), pb::Cause::NODE_LOST);
  EXPECT_THAT(refused.refused().cause().message(),
              HasSubstr("its agent sent a message about rank 9, which is not its own"));
  EXPECT_EQ(coordinator_->phase(), Phase::kDraining);
}

TEST_F(ElasticTest, LosesNodeThatDoesNotDrainInTime) {
  Start();
  Failed(1, 3, 7);
  Drained(0);
  Drained(1);
  Drained(3);
  EXPECT_THAT(PassWith(20'500, {0, 1, 2, 3}), IsEmpty());
  const std::vector<Outgoing> late = PassWith(1'000, {0, 1, 2, 3});
  EXPECT_THAT(Assigned(late), ElementsAre(0, 1, 3));
  EXPECT_THAT(To(2, late, Case::kRefused).refused().cause().message(),
              HasSubstr("node2 was lost: it did not end its ranks in time"));
  EXPECT_EQ(coordinator_->phase(), Phase::kStarting);
}

TEST_F(ElasticTest, NodeWithLeftProcessesGetsNoRanks) {
  Start();
  Failed(1, 3, 7);
  Drained(0);
  Drained(2);
  Drained(3);
  pb::AgentMessage left = From(1);
  left.mutable_drained()->add_left()->set_pid(77);
  const std::vector<Outgoing> form = Log(left);
  EXPECT_THAT(Assigned(form), ElementsAre(0, 2, 3));
  EXPECT_THAT(Notices(form), HasSubstr("node1 gets no more ranks"));
}

TEST_F(ElasticTest, WaitsForBackOffBeforeNextAttempt) {
  CoordinatorOptions options = Options();
  options.policy.set_backoff_ms(2'000);
  Begin(options);
  Start();
  EXPECT_EQ(To(0, Failed(1, 3, 7), Case::kDrain).drain().delay_ms(), 2'000u);
  for (uint32_t node = 0; node < 4; ++node) EXPECT_THAT(Drained(node), IsEmpty());
  EXPECT_THAT(PassWith(1'500, {0, 1, 2, 3}), IsEmpty());
  EXPECT_THAT(Assigned(PassWith(500, {0, 1, 2, 3})), ElementsAre(0, 1, 2));
}

TEST_F(ElasticTest, EndsWithCauseWhenRestartsAreUsedUp) {
  Start();
  for (int restart = 0; restart < 2; ++restart) {
    Failed(1, 3, 7);
    for (uint32_t node = 0; node < 4; ++node) Drained(node);
  }
  const std::vector<Outgoing> end = Failed(1, 2, 7);
  EXPECT_EQ(Notices(end), "no restart: restart 2 of 2 was the last (--max_restarts)\n");
  EXPECT_EQ(To(0, end, Case::kStop).stop().cause().rank(), 2);
}

TEST_F(ElasticTest, LaterReportReplacesVictimAsCause) {
  CoordinatorOptions options = Options();
  options.policy.set_max_restarts(0);
  Begin(options);
  Start();
  Failed(0, 1, 7, /*victim=*/true);
  EXPECT_EQ(To(0, PassWith(2'000, {0, 1, 2, 3}), Case::kStop).stop().cause().rank(), 1);
  Failed(2, 4, 7);
  for (uint32_t node = 0; node < 3; ++node) TornDown(node);
  const std::vector<Outgoing> closed = TornDown(3);
  const Case own = To(0, closed, Case::kCompleted);
  EXPECT_EQ(own.completed().cause().rank(), 4);
  EXPECT_THAT(own.completed().victims(), ElementsAre(1));
  EXPECT_EQ(Notices(closed), "first cause: rank 4 (node2) (the others look like its victims)\n");
}

// The victims exit first, as do Python programs that leave the process group before they exit.
TEST_F(ElasticTest, WaitsForTheCauseBehindAVictim) {
  Start();
  EXPECT_THAT(Failed(0, 1, 1, /*victim=*/true), IsEmpty());
  EXPECT_THAT(Failed(1, 2, 1, /*victim=*/true), IsEmpty());
  EXPECT_FALSE(To(0, PassWith(1'000, {0, 1, 2, 3}), Case::kDrain).has_drain());
  const std::vector<Outgoing> drain = Failed(2, 4, 1);
  EXPECT_EQ(To(0, drain, Case::kDrain).drain().cause().rank(), 4);
}

TEST_F(ElasticTest, EndsAtOnceWhenEveryRankHasFailed) {
  Start();
  for (int rank = 0; rank < 5; ++rank)
    EXPECT_THAT(Failed(static_cast<uint32_t>(rank / 2), rank, 1, /*victim=*/true), IsEmpty());
  EXPECT_EQ(To(0, Failed(2, 5, 1, /*victim=*/true), Case::kDrain).drain().cause().rank(), 0);
}

// The rank's output already contained its own error when the rank was stopped.
TEST_F(ElasticTest, ErrorDuringStopReplacesVictimAsCause) {
  CoordinatorOptions options = Options();
  options.policy.set_max_restarts(0);
  Begin(options);
  Start();
  Failed(0, 1, 1, /*victim=*/true);
  EXPECT_EQ(To(0, PassWith(2'000, {0, 1, 2, 3}), Case::kStop).stop().cause().rank(), 1);
  Failed(2, 4, 1, /*victim=*/false, /*while_stopping=*/true);
  for (uint32_t node = 0; node < 3; ++node) TornDown(node);
  EXPECT_EQ(To(0, TornDown(3), Case::kCompleted).completed().cause().rank(), 4);
}

TEST_F(ElasticTest, ErrorDuringStopDoesNotReplaceEarlierFailure) {
  CoordinatorOptions options = Options();
  options.policy.set_max_restarts(0);
  Begin(options);
  Start();
  EXPECT_EQ(To(0, Failed(0, 1, 7), Case::kStop).stop().cause().rank(), 1);
  Failed(2, 4, 1, /*victim=*/false, /*while_stopping=*/true);
  for (uint32_t node = 0; node < 3; ++node) TornDown(node);
  EXPECT_EQ(To(0, TornDown(3), Case::kCompleted).completed().cause().rank(), 1);
}

TEST_F(ElasticTest, InspectsRunningRanksAfterATimeout) {
  Start();
  pb::AgentMessage late = From(0);
  pb::Cause& cause = *late.mutable_worker_failed()->mutable_cause();
  cause = MakeCause(pb::Cause::WORKER_EXIT, 0, ExitCode::kInternal, "");
  cause.set_rank(1);
  cause.set_victim(true);
  cause.set_peer_fault(pb::Cause::LATE);
  EXPECT_THAT(Log(late), IsEmpty());
  Failed(2, 4, 1, /*victim=*/true);
  Finished(1);
  const std::vector<Outgoing> out = PassWith(2'000, {0, 1, 2, 3});
  EXPECT_THAT(To(0, out, Case::kInspect).inspect().ranks(), ElementsAre(0));
  EXPECT_EQ(To(0, out, Case::kInspect).inspect().reason(), "was still running when rank 1 failed");
  EXPECT_FALSE(To(1, out, Case::kInspect).has_inspect());
  EXPECT_THAT(To(2, out, Case::kInspect).inspect().ranks(), ElementsAre(5));
  EXPECT_EQ(To(0, out, Case::kDrain).drain().cause().rank(), 1);
}

TEST_F(ElasticTest, InspectsNoRankAfterALostConnection) {
  Start();
  Failed(2, 4, 1, /*victim=*/true);
  EXPECT_FALSE(To(0, PassWith(2'000, {0, 1, 2, 3}), Case::kInspect).has_inspect());
}

TEST_F(ElasticTest, ContinuesWithoutALeavingNodeAtNoCost) {
  Start();
  const std::vector<Outgoing> left = StopJob(1, pb::Cause::NODE_LEFT);
  EXPECT_EQ(To(0, left, Case::kDrain).drain().cause().kind(), pb::Cause::NONE);
  EXPECT_EQ(To(0, left, Case::kDrain).drain().reason(), "why");
  EXPECT_FALSE(To(1, left, Case::kDrain).has_drain());
  EXPECT_THAT(StopJob(1, pb::Cause::NODE_LOST), IsEmpty()) << "its command is gone";
  for (const uint32_t node : {0, 2, 3}) EXPECT_THAT(Assigned(Drained(node)), IsEmpty());
  const std::vector<Outgoing> next = TornDown(1);
  EXPECT_THAT(Assigned(next), ElementsAre(0, 2, 3));
  for (const Outgoing& one : next) EXPECT_EQ(one.message.assignment().restart_count(), 0u);
  EXPECT_THAT(coordinator_->OnDisconnect(2, now_), IsEmpty());
  EXPECT_EQ(coordinator_->phase(), Phase::kStarting);
  EXPECT_THAT(Notices(Rejoin(1, 17)), HasSubstr("node1 joined"));
}

// The old session may still exist, because the host keeps the connection of an ended agent in case
// the agent resumes it.
TEST_F(ElasticTest, NodeThatLeftMayRejoinBeforeItsOldSessionEnds) {
  Start();
  StopJob(1, pb::Cause::NODE_LEFT);
  for (const uint32_t node : {0, 2, 3}) Drained(node);
  TornDown(1);
  for (const uint32_t node : {0, 2, 3}) Ready(node);
  EXPECT_THAT(Notices(PassWith(5'000, {0, 2, 3})), IsEmpty()) << "nothing is awaited of node1";
  EXPECT_THAT(Notices(Rejoin(1, 17)), HasSubstr("node1 joined"));
  EXPECT_THAT(coordinator_->OnDisconnect(2, now_), IsEmpty());
  EXPECT_THAT(Beat(1), SizeIs(1)) << "the new agent is still a participant";
}

TEST_F(ElasticTest, RefusesSecondAgentOfNodeThatIsLeaving) {
  Start();
  StopJob(1, pb::Cause::NODE_LEFT);
  const std::vector<Outgoing> out = Rejoin(1, 17);
  ASSERT_THAT(out, SizeIs(1));
  EXPECT_EQ(out[0].session, 17u);
  EXPECT_THAT(out[0].message.refused().cause().message(), HasSubstr("it has joined already"));
}

TEST_F(ElasticTest, FindsSilentNodeAsCauseOfItsVictims) {
  Start();
  Failed(0, 1, 7, /*victim=*/true);
  EXPECT_EQ(To(0, PassWith(2'000, {0, 2, 3}), Case::kDrain).drain().cause().rank(), 1);
  for (const uint32_t node : {0, 2, 3}) Drained(node);
  EXPECT_THAT(Notices(PassWith(2'000, {0, 2, 3})), HasSubstr("no heartbeat from node1"));
  const std::vector<Outgoing> form = PassWith(4'000, {0, 2, 3});
  EXPECT_THAT(Assigned(form), ElementsAre(0, 2, 3));
  EXPECT_THAT(Notices(form), HasSubstr("first cause: node1 was lost: no heartbeat for 6 s"));
}

// Nodes that become silent together, as after the failure of a switch, cost one restart, whichever
// node has drained already.
TEST_F(ElasticTest, NodesSilentTogetherCostOneRestart) {
  Start();
  Failed(0, 1, 7);
  for (const uint32_t node : {0, 2, 3}) Drained(node);
  std::vector<Outgoing> out;
  while (Assigned(out).empty() && now_ < kLate) out = PassWith(500, {0, 3});
  EXPECT_THAT(Assigned(out), ElementsAre(0, 3));
  EXPECT_EQ(coordinator_->attempt(), 2u);
  EXPECT_EQ(coordinator_->phase(), Phase::kStarting);
}

TEST_F(ElasticTest, NamesFirstOfNodesSilentTogetherAsCause) {
  Start();
  Pass(100);
  for (const uint32_t node : {0, 1, 3}) Beat(node);
  std::vector<Outgoing> out;
  while (coordinator_->phase() == Phase::kRunning && now_ < kLate) out = PassWith(500, {0, 3});
  const pb::Cause cause = To(0, out, Case::kDrain).drain().cause();
  EXPECT_EQ(cause.node_index(), 2u);
  EXPECT_EQ(cause.message(), "node2 was lost: no heartbeat for 6 s; node1 too");
  EXPECT_EQ(To(1, out, Case::kRefused).refused().cause().message(),
            "node1 was lost: no heartbeat for 6 s; it is no longer part of the job");
  for (const uint32_t node : {0, 3}) out = Drained(node);
  EXPECT_THAT(Assigned(out), ElementsAre(0, 3));
}

// Simulates a half-open firewall: messages of the rendezvous' node arrive elsewhere, but no
// messages arrive at that node.
class CutOffTest : public ElasticTest {
 protected:
  CutOffTest() { Restart(/*max_restarts=*/2, /*voters=*/{}); }

  void Restart(uint32_t max_restarts, std::vector<uint32_t> voters) {
    CoordinatorOptions options = Options();
    options.timeouts.set_heartbeat_ms(1'000);
    options.policy.set_max_restarts(max_restarts);
    options.voters = std::move(voters);
    options.majority = MajorityOf(options.voters.size());
    Begin(options);
    Start();
    // The last heartbeats arrive at different times.
    for (const uint32_t node : {1, 2, 3}) {
      Pass(300);
      Beat(node);
    }
  }
  // Advances the clock until a message of this kind is sent to node 0. Returns all messages.
  std::vector<Outgoing> PassUntil(Case::MessageCase kind, const std::vector<uint32_t>& alive) {
    std::vector<Outgoing> all, out;
    while (To(0, out, kind).message_case() != kind && now_ < kLate) {
      out = PassWith(500, alive);
      all.insert(all.end(), out.begin(), out.end());
    }
    return all;
  }
  static bool HasRefused(const std::vector<Outgoing>& out) {
    return std::ranges::any_of(out, [](const Outgoing& one) { return one.message.has_refused(); });
  }
};

TEST_F(CutOffTest, RefusesNoNodeWhenAllOthersFallSilent) {
  const std::vector<Outgoing> out = PassUntil(Case::kCutOff, {0});
  EXPECT_EQ(To(0, out, Case::kCutOff).cut_off().cause().message(),
            "node1 was lost: no heartbeat for 6 s; node2, node3 too");
  EXPECT_FALSE(HasRefused(out));
  EXPECT_EQ(coordinator_->phase(), Phase::kRunning);
}

TEST_F(CutOffTest, LosesTheOthersWhenItsOwnNodeStays) {
  PassUntil(Case::kCutOff, {0});
  const std::vector<Outgoing> out = PassUntil(Case::kDrain, {0});
  EXPECT_EQ(To(0, out, Case::kDrain).drain().cause().node_index(), 1u);
  EXPECT_TRUE(To(2, out, Case::kRefused).has_refused());
}

TEST_F(CutOffTest, SendsNothingToOwnAgentThatHasNotJoined) {
  CoordinatorOptions options = Options();
  options.policy.set_max_restarts(2);
  Begin(options);
  for (const uint32_t node : {1, 2, 3}) Join(node);
  const Clock::time_point joined_at = now_;
  while (coordinator_->phase() == Coordinator::Phase::kJoining &&
         now_ <= joined_at + milliseconds(options.timeouts.join_ms()))
    PassWith(500, {1, 2, 3});
  ASSERT_EQ(coordinator_->phase(), Coordinator::Phase::kStarting);
  const Clock::time_point silent_since = now_;
  while (now_ < silent_since + milliseconds(10'000)) {
    for (const Outgoing& one : PassWith(500, {})) EXPECT_NE(one.session, 0u);
  }
}

TEST_F(CutOffTest, LosesSilentNodesOnceAnotherNodeAnswers) {
  PassWith(500, {0});
  while (now_ < Clock::time_point(milliseconds(6'100))) PassWith(500, {0});
  Beat(3);
  const std::vector<Outgoing> out = PassUntil(Case::kDrain, {0, 3});
  EXPECT_EQ(To(0, out, Case::kDrain).drain().cause().message(),
            "node1 was lost: no heartbeat for 6 s");
  EXPECT_FALSE(To(0, out, Case::kCutOff).has_cut_off());
}

TEST_F(CutOffTest, RefusesNoNodeWhenItLosesItsMajority) {
  Restart(/*max_restarts=*/2, /*voters=*/{0, 1, 2, 3});
  const std::vector<Outgoing> out = PassUntil(Case::kCutOff, {0, 3});
  EXPECT_TRUE(To(0, out, Case::kCutOff).has_cut_off());
  EXPECT_FALSE(HasRefused(out));
}

TEST_F(CutOffTest, NamesItsOwnNodeWhenNothingContinuesTheJob) {
  Restart(/*max_restarts=*/0, /*voters=*/{});
  const std::vector<Outgoing> out = PassUntil(Case::kStop, {0});
  EXPECT_EQ(To(0, out, Case::kStop).stop().cause().message(),
            "node0 received no heartbeat from any other node for 6 s; check its network, and that "
            "no firewall drops what is sent to it");
  EXPECT_FALSE(HasRefused(out));
}

TEST_F(ElasticTest, WaitsForSuspectBeforeRestart) {
  Start();
  Failed(0, 1, 7);
  for (const uint32_t node : {0, 2, 3}) Drained(node);
  Pass(1'000);
  Beat(2);
  std::vector<Outgoing> out;
  while (!To(1, out, Case::kRefused).has_refused() && now_ < kLate) out = PassWith(500, {0, 3});
  EXPECT_EQ(coordinator_->attempt(), 1u);
  Beat(2);
  EXPECT_THAT(Assigned(PassWith(500, {0, 3})), ElementsAre(0, 2, 3));
}

TEST_F(ElasticTest, ContinuesWithoutNodeWhoseSupervisorWasKilled) {
  Start();
  const std::vector<Outgoing> drain = StopJob(1, pb::Cause::NODE_LOST);
  EXPECT_FALSE(To(1, drain, Case::kDrain).has_drain());  // node 1 is already tearing down
  EXPECT_TRUE(To(0, drain, Case::kDrain).has_drain());
  Drained(0);
  Drained(2);
  EXPECT_THAT(Drained(3), IsEmpty());
  EXPECT_THAT(Assigned(TornDown(1)), ElementsAre(0, 2, 3));
  EXPECT_THAT(Vanish(1), IsEmpty());
}

TEST_F(ElasticTest, EndsJobIfRendezvousNodeDoesNotDrain) {
  Start();
  Failed(1, 3, 7);
  for (uint32_t node = 1; node < 4; ++node) Drained(node);
  EXPECT_THAT(PassWith(20'500, {0, 1, 2, 3}), IsEmpty());
  const std::vector<Outgoing> end = PassWith(1'000, {0, 1, 2, 3});
  EXPECT_EQ(To(1, end, Case::kStop).stop().cause().rank(), 3);
}

TEST_F(ElasticTest, FormsWithoutNodeLostBeforeTheStart) {
  Join(0);
  Join(1);
  EXPECT_THAT(Vanish(1), IsEmpty());
  Join(2);
  EXPECT_THAT(Assigned(Join(3)), ElementsAre(0, 2, 3));
  CoordinatorOptions options = Options();
  options.absent_nodes = {2, 3};
  Begin(options);
  Join(1);
  Join(2);
  EXPECT_THAT(Vanish(2), IsEmpty());  // two nodes are still expected
  EXPECT_THAT(Assigned(Join(0)), ElementsAre(0, 1));
}

TEST_F(ElasticTest, UsersStopEndsJobThatIsRestarting) {
  Start();
  Failed(1, 3, 7);
  const std::vector<Outgoing> stop = StopJob(2, pb::Cause::INTERRUPTED);
  EXPECT_TRUE(To(0, stop, Case::kStop).has_stop());
  Failed(1, 2, 7);  // a failure in the attempt that was about to be repaired
  for (uint32_t node = 0; node < 3; ++node) TornDown(node);
  EXPECT_EQ(To(0, TornDown(3), Case::kCompleted).completed().cause().kind(),
            pb::Cause::INTERRUPTED);
}

TEST_F(ElasticTest, LossOfSpareIsOnlyReported) {
  Start();
  EXPECT_THAT(Notices(Vanish(3)),
              HasSubstr("node3 was lost: its agent disconnected; it had no ranks"));
  for (uint32_t node = 0; node < 3; ++node) Finished(node);
  TornDown(0);
  TornDown(1);
  const std::vector<Outgoing> closed = TornDown(2);
  EXPECT_TRUE(To(0, closed, Case::kCompleted).completed().teardown_complete());
  EXPECT_EQ(To(0, closed, Case::kCompleted).completed().cause().kind(), pb::Cause::NONE);
}

TEST_F(ElasticTest, ReturnsTimeOfHeartbeat) {
  Start();
  const std::vector<Outgoing> echo = Beat(1);
  ASSERT_EQ(echo.size(), 1u);
  EXPECT_EQ(echo[0].message.heartbeat().sent_us(), 42u);
}

TEST_F(ElasticTest, InspectsHangOnceThenAppliesPolicy) {
  for (const auto on_hang : {pb::Policy::REPORT, pb::Policy::KILL, pb::Policy::RESTART}) {
    CoordinatorOptions options = Options();
    options.policy.set_hang_ms(10'000);
    options.policy.set_on_hang(on_hang);
    Begin(options);
    Start();
    Beat(0, 12);
    Beat(1, 11);
    Beat(2, 12);
    EXPECT_THAT(PassWith(9'500, {0, 1, 2, 3}), IsEmpty());
    const std::vector<Outgoing> asked = PassWith(500, {0, 1, 2, 3});
    EXPECT_EQ(To(1, asked, Case::kInspect).inspect().look(), 1u);
    EXPECT_THAT(To(1, asked, Case::kInspect).inspect().ranks(), ElementsAre(2, 3));
    EXPECT_THAT(PassWith(500, {0, 1, 2, 3}), IsEmpty());
    const std::vector<Outgoing> hang = PassWith(500, {0, 1, 2, 3});
    EXPECT_THAT(Notices(hang), HasSubstr("ranks 2, 3 are stuck at step 11, others are at step 12"));
    if (on_hang == pb::Policy::REPORT) {
      EXPECT_EQ(hang.size(), 1u);
      EXPECT_THAT(PassWith(20'000, {0, 1, 2, 3}), IsEmpty());
    } else if (on_hang == pb::Policy::KILL) {
      EXPECT_TRUE(To(0, hang, Case::kStop).has_stop());
      EXPECT_EQ(To(0, hang, Case::kStop).stop().cause().kind(), pb::Cause::HANG);
      EXPECT_EQ(To(0, hang, Case::kStop).stop().cause().exit_code(), 75);
      EXPECT_EQ(To(0, hang, Case::kStop).stop().cause().node_index(), 1u);
    } else {
      EXPECT_TRUE(To(0, hang, Case::kDrain).has_drain());
      EXPECT_EQ(To(0, hang, Case::kDrain).drain().cause().kind(), pb::Cause::HANG);
    }
  }
}

class StandstillOfJobTest : public ElasticTest {
 protected:
  void StartWith(pb::Policy::OnHang on_hang) {
    CoordinatorOptions options = Options();
    options.policy.set_standstill_ms(60'000);
    options.policy.set_on_hang(on_hang);
    options.timeouts.set_heartbeat_ms(1'000);
    Begin(options);
    Start();
  }
  // Sends heartbeats in which both ranks of each node have been still for `still_s` seconds.
  // Returns the answers except heartbeats.
  std::vector<Outgoing> BeatStill(int still_s) {
    std::vector<Outgoing> sent;
    const auto add = [&](std::vector<Outgoing> more) {
      for (Outgoing& out : more) {
        if (!out.message.has_heartbeat()) sent.push_back(std::move(out));
      }
    };
    for (uint32_t node = 0; node < 3; ++node) {
      pb::AgentMessage message = From(node);
      for (uint32_t local = 0; local < 2; ++local) {
        pb::Stillness& rank = *message.mutable_heartbeat()->add_stillness();
        rank.set_rank(2 * node + local);
        rank.set_still_us(static_cast<uint64_t>(still_s) * 1'000'000);
        rank.set_looks(12);
        rank.set_readable(true);
        rank.set_connected(true);
      }
      add(Log(message));
    }
    add(coordinator_->OnTick(now_));
    return sent;
  }
  // Sends a node's answers to a look: the rank `outside` reads a file, and the other ranks wait in
  // a barrier.
  std::vector<Outgoing> Answer(uint32_t node, uint64_t look, uint32_t outside) {
    std::vector<Outgoing> sent;
    for (uint32_t rank = 2 * node; rank < 2 * node + 2; ++rank) {
      pb::AgentMessage message = From(node);
      pb::Inspected& inspected = *message.mutable_inspected();
      inspected.set_look(look);
      inspected.mutable_stacks()->set_rank(rank);
      pb::ProcessStacks& process = *inspected.mutable_stacks()->add_processes();
      process.set_python("3.11");
      pb::StackFrame& frame = *process.add_threads()->add_frames();
      frame.set_function(rank == outside ? "load" : "barrier");
      frame.set_file(rank == outside ? "/u/data.py" : "/x/torch/distributed/distributed_c10d.py");
      frame.set_line(41);
      for (Outgoing& out : Log(message)) sent.push_back(std::move(out));
    }
    return sent;
  }
};

TEST_F(StandstillOfJobTest, RequestsFlightRecordsIfNotSure) {
  StartWith(pb::Policy::REPORT);
  const uint64_t look = To(1, BeatStill(60), Case::kInspect).inspect().look();
  const uint32_t none = 99;  // no such rank, so all ranks wait
  Answer(0, look, none);
  Answer(1, look, none);
  const std::vector<Outgoing> asked = Answer(2, look, none);
  EXPECT_EQ(Notices(asked), "");
  ASSERT_TRUE(To(1, asked, Case::kInspect).inspect().flight());
  std::vector<Outgoing> sent;
  for (uint32_t rank = 0; rank < 6; ++rank) {
    pb::AgentMessage message = From(rank / 2);
    pb::Inspected& inspected = *message.mutable_inspected();
    inspected.set_look(look);
    inspected.mutable_stacks()->set_rank(rank);
    pb::FlightGroup& group = *inspected.mutable_flight()->add_groups();
    group.set_name("0");
    group.set_description("default_pg");
    group.set_enqueued(rank == 4 ? 6 : 7);
    if (rank != 4) {
      group.add_operations()->set_number(7);
      group.mutable_operations(0)->set_name("all_reduce");
    }
    sent = Log(message);
  }
  EXPECT_THAT(Notices(sent), HasSubstr("rank 4 (node2, local rank 0) has not called all_reduce "
                                       "(collective 7 of group default_pg)"));
}

TEST_F(StandstillOfJobTest, NamesCulpritOnceAllHaveAnswered) {
  StartWith(pb::Policy::REPORT);
  EXPECT_THAT(BeatStill(57), IsEmpty());
  const std::vector<Outgoing> asked = BeatStill(60);
  ASSERT_TRUE(To(1, asked, Case::kInspect).has_inspect());
  EXPECT_THAT(To(1, asked, Case::kInspect).inspect().ranks(), ElementsAre(2, 3));
  const uint64_t look = To(1, asked, Case::kInspect).inspect().look();
  EXPECT_THAT(Answer(0, look, 3), IsEmpty());
  EXPECT_THAT(Answer(1, look, 3), IsEmpty());
  const std::string text = Notices(Answer(2, look, 3));
  EXPECT_THAT(text, HasSubstr("no rank has moved for 60 s (--hang_s 60)"));
  EXPECT_THAT(text, HasSubstr("rank 3 (node1, local rank 1) is not where the others are"));
  EXPECT_THAT(text, HasSubstr("load (data.py:41)"));
  Pass(60'000);
  EXPECT_THAT(BeatStill(120), IsEmpty()) << "it was reported";
  EXPECT_EQ(Notices(BeatStill(0)), "the ranks move again\n");
}

TEST_F(StandstillOfJobTest, ReadsStacksBeforeLimitEnds) {
  StartWith(pb::Policy::REPORT);
  const uint64_t look = To(1, BeatStill(58), Case::kInspect).inspect().look();
  for (uint32_t node = 0; node < 3; ++node) EXPECT_THAT(Answer(node, look, 3), IsEmpty());
  EXPECT_THAT(BeatStill(59), IsEmpty());
  EXPECT_THAT(Notices(BeatStill(60)), HasSubstr("no rank has moved for 60 s (--hang_s 60)"));
}

TEST_F(StandstillOfJobTest, ForgetsVerdictAfterSignOfLifeBeforeLimit) {
  StartWith(pb::Policy::KILL);
  const uint64_t look = To(1, BeatStill(58), Case::kInspect).inspect().look();
  for (uint32_t node = 0; node < 3; ++node) Answer(node, look, 3);
  EXPECT_THAT(BeatStill(0), IsEmpty());
  Pass(15'000);
  EXPECT_TRUE(To(1, BeatStill(60), Case::kInspect).has_inspect());
}

TEST_F(StandstillOfJobTest, JudgesWithoutNodeThatDoesNotAnswer) {
  StartWith(pb::Policy::REPORT);
  const uint64_t look = To(1, BeatStill(60), Case::kInspect).inspect().look();
  Answer(0, look, 3);
  Answer(1, look, 3);
  Pass(1'000);
  EXPECT_TRUE(To(1, BeatStill(61), Case::kInspect).inspect().flight());
  Pass(8'000);
  EXPECT_THAT(Notices(BeatStill(69)), HasSubstr("rank 3 (node1, local rank 1)"));
}

TEST_F(StandstillOfJobTest, DropsInquiryAfterSignOfLife) {
  StartWith(pb::Policy::KILL);
  const uint64_t look = To(1, BeatStill(60), Case::kInspect).inspect().look();
  EXPECT_THAT(BeatStill(0), IsEmpty());
  for (uint32_t node = 0; node < 3; ++node) EXPECT_THAT(Answer(node, look, 3), IsEmpty());
}

TEST_F(StandstillOfJobTest, EndsJobWithCulpritAsCause) {
  StartWith(pb::Policy::KILL);
  const uint64_t look = To(1, BeatStill(60), Case::kInspect).inspect().look();
  std::vector<Outgoing> sent;
  for (uint32_t node = 0; node < 3; ++node) sent = Answer(node, look, 3);
  const pb::Cause cause = To(0, sent, Case::kStop).stop().cause();
  EXPECT_EQ(cause.kind(), pb::Cause::HANG);
  EXPECT_EQ(cause.rank(), 3);
  EXPECT_EQ(cause.node_index(), 1u);
  EXPECT_EQ(cause.message(),
            "no rank has moved for 60 s (--hang_s 60): rank 3 (node1, local rank 1) is not where "
            "the others are");
}

TEST_F(ElasticTest, ReportsStragglerWithItsNode) {
  CoordinatorOptions options = Options();
  options.policy.set_hang_ms(60'000);
  Begin(options);
  Start();
  decltype(coordinator_->OnTick(now_)) out;
  const auto beat = [&](uint64_t step, uint64_t slow_us) {
    for (uint32_t node = 0; node < 3; ++node) {
      pb::AgentMessage message = From(node);
      pb::RankProgress& rank = *message.mutable_heartbeat()->add_ranks();
      rank.set_rank(2 * node);
      rank.set_step(step);
      rank.set_median_step_us(1'000'000);
      rank.set_median_compute_us(node == 1 ? slow_us : 100'000);
      Log(message);
    }
    Pass(500);
    out = coordinator_->OnTick(now_);
    return Notices(out);
  };
  EXPECT_EQ(beat(1, 200'000), "");
  EXPECT_THAT(beat(11, 200'000), HasSubstr("rank 2 is slow: 200.0 ms"));
  const pb::Inspect inspect = To(1, out, Case::kInspect).inspect();
  EXPECT_THAT(inspect.ranks(), testing::ElementsAre(2));
  EXPECT_EQ(inspect.looks(), 3u) << "its stacks a second apart";
  EXPECT_EQ(beat(12, 399'000), "");
  EXPECT_THAT(beat(13, 400'000), HasSubstr("(node1)"));
}

TEST_F(ElasticTest, DoesNotReportStragglerThatSharesCores) {
  CoordinatorOptions options = Options();
  options.policy.set_hang_ms(60'000);
  Begin(options);
  Start();
  for (const uint64_t step : {1, 11}) {
    for (uint32_t node = 0; node < 3; ++node) {
      pb::AgentMessage message = From(node);
      pb::RankProgress& rank = *message.mutable_heartbeat()->add_ranks();
      rank.set_rank(2 * node);
      rank.set_step(step);
      rank.set_median_step_us(1'000'000);
      rank.set_median_compute_us(node == 1 ? 900'000 : 100'000);
      rank.set_shares_cores(node == 1);
      Log(message);
    }
    Pass(500);
    EXPECT_EQ(Notices(coordinator_->OnTick(now_)), "");
  }
}

TEST_F(ElasticTest, SpareReplacesNodeThatFailsOftenUntilCooldown) {
  CoordinatorOptions options = Options();
  options.policy.set_max_restarts(10);
  options.policy.set_node_failures(2);
  options.policy.set_cooldown_ms(60'000);
  Begin(options);
  Start();
  const auto restart = [&](uint32_t node, int rank) {
    Failed(node, rank, 7);
    std::vector<Outgoing> form;
    for (uint32_t drained = 0; drained < 4; ++drained) form = Drained(drained);
    return Assigned(form);
  };
  EXPECT_THAT(restart(1, 3), ElementsAre(0, 1, 2));
  EXPECT_THAT(restart(1, 3), ElementsAre(0, 2, 3));
  Pass(60'000);
  EXPECT_THAT(restart(0, 1), ElementsAre(0, 1, 2));
}

TEST_F(ElasticTest, EndsJobAfterAttemptsWithoutANewStep) {
  CoordinatorOptions options = Options();
  options.policy.set_max_restarts(100);
  Begin(options);
  Start();
  for (const bool ends : {false, false, true}) {
    Beat(0, 30);
    const std::vector<Outgoing> out = Failed(1, 3, 7);
    EXPECT_EQ(To(0, out, Case::kStop).has_stop(), ends);
    EXPECT_EQ(Notices(out).find("restart loop without a new step") != std::string::npos, ends);
    for (uint32_t node = 0; node < 4; ++node) Drained(node);
  }
}

TEST_F(ElasticTest, CountsStepsThatNoHeartbeatReported) {
  CoordinatorOptions options = Options();
  options.policy.set_max_restarts(100);
  Begin(options);
  Start();
  for (uint64_t step = 30; step < 34; ++step) {
    const std::vector<Outgoing> out =
        Failed(1, 3, 7, /*victim=*/false, /*while_stopping=*/false, step);
    EXPECT_FALSE(To(0, out, Case::kStop).has_stop()) << step;
    for (uint32_t node = 0; node < 4; ++node) Drained(node);
  }
}

// --- After the loss of another rendezvous ---

class FailoverTest : public ElasticTest {
 protected:
  // Returns the options after a failover. node0, which hosted the rendezvous, was lost in attempt
  // 4, and that used one of two restarts.
  static CoordinatorOptions AfterFailover() {
    CoordinatorOptions options = Options();
    options.rendezvous_node = 1;
    options.absent_nodes = {0};
    options.attempt = 4;
    options.restarts = 1;
    options.attempt_ended_by =
        MakeCause(pb::Cause::NODE_LOST, 0, ExitCode::kUnavailable, "node0 was lost");
    return options;
  }
  FailoverTest() { Begin(AfterFailover()); }
};

TEST_F(FailoverTest, ContinuesNumberOfAttempts) {
  Join(1);
  Join(2);
  const std::vector<Outgoing> out = Join(3);
  EXPECT_THAT(Assigned(out), ElementsAre(1, 2, 3));
  EXPECT_EQ(coordinator_->attempt(), 5u);
  for (const Outgoing& one : out) {
    if (!one.message.has_assignment()) continue;
    EXPECT_EQ(one.message.assignment().restart_count(), 1u);
  }
}

TEST_F(FailoverTest, ContinuesCountOfRestarts) {
  for (uint32_t node = 1; node < 4; ++node) Join(node);
  for (uint32_t node = 1; node < 4; ++node) Ready(node);
  Failed(1, 0, 9);
  EXPECT_EQ(coordinator_->phase(), Phase::kDraining);
  for (uint32_t node = 1; node < 4; ++node) Drained(node, 30'000);
  PassWith(60'000, {1, 2, 3});
  ASSERT_EQ(coordinator_->attempt(), 6u);
  for (uint32_t node = 1; node < 4; ++node) Ready(node);
  Failed(1, 0, 9);
  EXPECT_EQ(coordinator_->phase(), Phase::kStopping);
}

TEST_F(FailoverTest, NamesLostNodeAsCauseIfTooFewFollow) {
  Join(1);
  std::vector<Outgoing> out;
  for (int ms = 0; ms < 40'000 && coordinator_->phase() == Phase::kJoining; ms += 500) {
    Pass(500);
    Beat(1);
    out = coordinator_->OnTick(now_);
  }
  ASSERT_EQ(coordinator_->phase(), Phase::kStopping);
  EXPECT_THAT(Notices(out), HasSubstr("no restart"));
  bool stopped = false;
  for (const Outgoing& one : out) {
    if (!one.message.has_stop()) continue;
    stopped = true;
    EXPECT_EQ(one.message.stop().cause().message(), "node0 was lost");
  }
  EXPECT_TRUE(stopped);
}

}  // namespace
}  // namespace dslaunch::attempts_test
