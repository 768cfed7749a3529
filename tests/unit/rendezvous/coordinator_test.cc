#include "rendezvous/coordinator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>

#include "rendezvous/cause.h"

namespace dslaunch {
namespace {

using Phase = Coordinator::Phase;
using ::testing::HasSubstr;

// Three nodes of two slots and a clock that the test turns. Session i + 1 is node i's.
class CoordinatorTest : public ::testing::Test {
 protected:
  CoordinatorTest() : coordinator_(Options(), now_) {}

  static CoordinatorOptions Options() {
    CoordinatorOptions options;
    options.job_id = "job";
    for (const char* name : {"node1", "node2", "node3"}) {
      pb::Node node;
      node.set_name(name);
      node.set_slots(2);
      options.nodes.push_back(node);
    }
    options.timeouts.set_join_ms(30'000);
    options.timeouts.set_ready_ms(20'000);
    options.timeouts.set_grace_ms(10'000);
    options.timeouts.set_teardown_ms(5'000);
    options.timeouts.set_dead_ms(6'000);
    return options;
  }

  pb::AgentMessage From(uint32_t node) const {
    pb::AgentMessage message;
    message.set_job_id("job");
    message.set_node_index(node);
    message.set_epoch(coordinator_.epoch());
    return message;
  }

  std::vector<Outgoing> Join(uint32_t node) {
    pb::AgentMessage message = From(node);
    message.mutable_join()->set_slots(2);
    message.mutable_join()->set_identity("machine" + std::to_string(node));
    if (node > 0) message.mutable_join()->set_reached_at("10.0.0.1");
    return coordinator_.OnMessage(node + 1, message, now_);
  }
  std::vector<Outgoing> Ready(uint32_t node) {
    pb::AgentMessage message = From(node);
    message.mutable_ready();
    return coordinator_.OnMessage(node + 1, message, now_);
  }
  std::vector<Outgoing> Finished(uint32_t node) {
    pb::AgentMessage message = From(node);
    message.mutable_finished();
    return coordinator_.OnMessage(node + 1, message, now_);
  }
  std::vector<Outgoing> TornDown(uint32_t node) {
    pb::AgentMessage message = From(node);
    message.mutable_torn_down();
    return coordinator_.OnMessage(node + 1, message, now_);
  }
  std::vector<Outgoing> Failed(uint32_t node, int rank, int exit_code) {
    pb::AgentMessage message = From(node);
    pb::Cause& cause = *message.mutable_worker_failed()->mutable_cause();
    cause = MakeCause(pb::Cause::WORKER_EXIT, node, ExitCode::kInternal, "");
    cause.set_rank(rank);
    cause.set_exit_code(exit_code);
    return coordinator_.OnMessage(node + 1, message, now_);
  }
  void Start() {
    for (uint32_t node = 0; node < 3; ++node) Join(node);
    for (uint32_t node = 0; node < 3; ++node) Ready(node);
    ASSERT_EQ(coordinator_.phase(), Phase::kRunning);
  }
  void Pass(int ms) { now_ += milliseconds(ms); }

  Clock::time_point now_{};
  Coordinator coordinator_;
};

TEST_F(CoordinatorTest, AssignsRanksOnceAllHaveJoined) {
  EXPECT_TRUE(Join(2).empty());
  EXPECT_TRUE(Join(0).empty());
  const std::vector<Outgoing> out = Join(1);
  ASSERT_EQ(out.size(), 3u);
  for (const Outgoing& one : out) {
    ASSERT_TRUE(one.message.has_assignment());
    EXPECT_EQ(one.message.epoch(), 1u);
    EXPECT_EQ(one.message.assignment().first_rank(), (one.session - 1) * 2);
    EXPECT_EQ(one.message.assignment().world_size(), 6u);
    EXPECT_EQ(one.message.assignment().master_addr(), "10.0.0.1");
  }
}

TEST_F(CoordinatorTest, EachBarrierCostsOneMessageEachWayPerAgent) {
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
    EXPECT_TRUE(one.message.closed().complete());
    EXPECT_TRUE(one.end_session);
  }
  EXPECT_EQ(coordinator_.phase(), Phase::kClosed);
}

TEST_F(CoordinatorTest, ARankThatEndsBeforeTheOthersAreReadyIsNoProblem) {
  for (uint32_t node = 0; node < 3; ++node) Join(node);
  Finished(0);
  Finished(1);
  const std::vector<Outgoing> out = Finished(2);
  ASSERT_EQ(out.size(), 6u);  // all ready, and at once all finished
  EXPECT_TRUE(out.back().message.has_stop());
}

TEST_F(CoordinatorTest, TheFirstFailureIsTheCauseForAll) {
  Start();
  const std::vector<Outgoing> out = Failed(1, 3, 7);
  ASSERT_EQ(out.size(), 3u);
  EXPECT_EQ(out[0].message.stop().cause().exit_code(), 7);
  EXPECT_TRUE(Failed(2, 4, 9).empty());
  TornDown(0);
  TornDown(1);
  const std::vector<Outgoing> closed = TornDown(2);
  EXPECT_EQ(closed[0].message.closed().cause().rank(), 3);
}

TEST_F(CoordinatorTest, AFailureAfterSuccessOnOtherNodesStopsAll) {
  Start();
  Finished(0);
  Finished(1);
  EXPECT_EQ(Failed(2, 5, 1).size(), 3u);
}

TEST_F(CoordinatorTest, AVanishedAgentIsTheCauseAndNobodyWaitsForIt) {
  Start();
  const std::vector<Outgoing> out = coordinator_.OnDisconnect(2, now_);
  ASSERT_EQ(out.size(), 2u);
  EXPECT_EQ(out[0].message.stop().cause().kind(), pb::Cause::NODE_LOST);
  EXPECT_EQ(out[0].message.stop().cause().exit_code(), 69);
  EXPECT_THAT(out[0].message.stop().cause().message(), HasSubstr("node2 was lost"));
  TornDown(0);
  const std::vector<Outgoing> closed = TornDown(2);
  ASSERT_EQ(closed.size(), 2u);
  EXPECT_FALSE(closed[0].message.closed().complete());
  EXPECT_EQ(closed[0].message.closed().missing_nodes(0), 1u);
}

TEST_F(CoordinatorTest, AnAgentLostBeforeItIsEmptySpoilsSuccess) {
  Start();
  for (uint32_t node = 0; node < 3; ++node) Finished(node);
  TornDown(0);
  TornDown(1);
  const std::vector<Outgoing> closed = coordinator_.OnDisconnect(3, now_);
  ASSERT_EQ(closed.size(), 2u);
  EXPECT_FALSE(closed[0].message.closed().complete());
  EXPECT_EQ(closed[0].message.closed().cause().kind(), pb::Cause::NODE_LOST);
}

TEST_F(CoordinatorTest, AnAgentThatLeavesAfterTheEndIsNotLost) {
  Start();
  for (uint32_t node = 0; node < 3; ++node) Finished(node);
  for (uint32_t node = 0; node < 3; ++node) TornDown(node);
  EXPECT_TRUE(coordinator_.OnDisconnect(1, now_).empty());
}

TEST_F(CoordinatorTest, SilenceIsDeathButAHeartbeatIsEnoughToLive) {
  Start();
  for (int second = 0; second < 5; ++second) {
    Pass(1'000);
    EXPECT_TRUE(coordinator_.OnTick(now_).empty());
  }
  Pass(900);
  pb::AgentMessage heartbeat = From(0);
  heartbeat.mutable_heartbeat();
  const std::vector<Outgoing> echo = coordinator_.OnMessage(1, heartbeat, now_);
  ASSERT_EQ(echo.size(), 1u);
  EXPECT_TRUE(echo[0].message.has_heartbeat());
  EXPECT_TRUE(coordinator_.OnTick(now_).empty());
  Pass(100);
  const std::vector<Outgoing> out = coordinator_.OnTick(now_);
  ASSERT_FALSE(out.empty());
  EXPECT_EQ(out[0].message.stop().cause().node_index(), 1u);
  EXPECT_THAT(out[0].message.stop().cause().message(), HasSubstr("silent for 6 s"));
  EXPECT_EQ(out[0].session, 1u);
}

TEST_F(CoordinatorTest, AMachineThatStoodStillBlamesNobody) {
  Start();
  Pass(3'600'000);
  EXPECT_TRUE(coordinator_.OnTick(now_).empty());
  Pass(2'000);
  EXPECT_TRUE(coordinator_.OnTick(now_).empty());
}

TEST_F(CoordinatorTest, JoiningHasADeadline) {
  Join(0);
  Join(2);
  pb::AgentMessage heartbeat = From(0);
  heartbeat.mutable_heartbeat();
  Pass(29'999);
  coordinator_.OnMessage(1, heartbeat, now_);
  heartbeat.set_node_index(2);
  coordinator_.OnMessage(3, heartbeat, now_);
  EXPECT_TRUE(coordinator_.OnTick(now_).empty());
  Pass(1);
  const std::vector<Outgoing> out = coordinator_.OnTick(now_);
  ASSERT_EQ(out.size(), 2u);
  EXPECT_THAT(out[0].message.stop().cause().message(), HasSubstr("node2 did not join"));
}

TEST_F(CoordinatorTest, TheTeardownBarrierHasADeadlineThatLeavesNodesTheirOwn) {
  Start();
  Failed(0, 0, 1);
  TornDown(0);
  for (int second = 0; second < 20; ++second) {
    Pass(1'000);
    for (uint32_t node = 0; node < 3; ++node) {
      pb::AgentMessage heartbeat = From(node);
      heartbeat.mutable_heartbeat();
      coordinator_.OnMessage(node + 1, heartbeat, now_);
    }
    EXPECT_TRUE(coordinator_.OnTick(now_).empty()) << "after " << second << " s";
  }
  Pass(1'001);
  for (uint32_t node = 0; node < 3; ++node) {
    pb::AgentMessage heartbeat = From(node);
    heartbeat.mutable_heartbeat();
    coordinator_.OnMessage(node + 1, heartbeat, now_);
  }
  const std::vector<Outgoing> closed = coordinator_.OnTick(now_);
  ASSERT_EQ(closed.size(), 3u);
  EXPECT_EQ(closed[0].message.closed().missing_nodes_size(), 2);
}

TEST_F(CoordinatorTest, RefusesWhoDoesNotBelong) {
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
    const std::vector<Outgoing> out = coordinator_.OnMessage(session++, message, now_);
    ASSERT_EQ(out.size(), 1u) << message.ShortDebugString();
    EXPECT_TRUE(out[0].message.has_refused());
    EXPECT_TRUE(out[0].end_session);
  }
  EXPECT_TRUE(Join(0).empty());
  EXPECT_EQ(coordinator_
                .OnMessage(
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

TEST_F(CoordinatorTest, MessagesOfAnotherEpochAreVoid) {
  Start();
  pb::AgentMessage old = From(0);
  old.set_epoch(0);
  old.mutable_finished();
  coordinator_.OnMessage(1, old, now_);
  Finished(1);
  EXPECT_TRUE(Finished(2).empty());  // node1's word of epoch 0 did not count
  EXPECT_EQ(coordinator_.phase(), Phase::kRunning);
}

TEST_F(CoordinatorTest, AStopBeforeTheStartEndsTheJob) {
  Join(0);
  pb::AgentMessage stop = From(0);
  *stop.mutable_stop()->mutable_cause() =
      MakeCause(pb::Cause::INTERRUPTED, 0, ExitCode::kInterrupted, "Ctrl-C");
  EXPECT_EQ(coordinator_.OnMessage(1, stop, now_).size(), 1u);
  const std::vector<Outgoing> late = Join(1);
  ASSERT_EQ(late.size(), 1u);
  EXPECT_EQ(late[0].message.refused().cause().kind(), pb::Cause::INTERRUPTED);
}

// --- Epochs ---

// Nodes 0 to 2 and the spare 3; two to three run the job, which may be restarted twice.
class ElasticTest : public ::testing::Test {
 protected:
  static CoordinatorOptions Options() {
    CoordinatorOptions options;
    options.job_id = "job";
    for (int i = 0; i < 4; ++i) {
      pb::Node node;
      node.set_name("node" + std::to_string(i));
      node.set_slots(2);
      node.set_spare(i == 3);
      options.nodes.push_back(node);
    }
    options.timeouts.set_join_ms(30'000);
    options.timeouts.set_ready_ms(20'000);
    options.timeouts.set_grace_ms(10'000);
    options.timeouts.set_teardown_ms(5'000);
    options.timeouts.set_suspect_ms(3'000);
    options.timeouts.set_dead_ms(6'000);
    options.policy.set_max_restarts(2);
    options.policy.set_min_nodes(2);
    options.policy.set_max_nodes(3);
    return options;
  }

  std::vector<Outgoing> Say(uint32_t node, pb::AgentMessage message) {
    message.set_job_id("job");
    message.set_node_index(node);
    message.set_epoch(coordinator_->epoch());
    return SayFrom(sessions_.contains(node) ? sessions_[node] : node + 1, message);
  }
  std::vector<Outgoing> SayFrom(SessionId session, const pb::AgentMessage& message) {
    return coordinator_->OnMessage(session, message, now_);
  }
  std::vector<Outgoing> Join(uint32_t node) {
    pb::AgentMessage message;
    pb::Join& join = *message.mutable_join();
    join.set_slots(2);
    join.set_identity("machine" + std::to_string(node));
    join.set_master_port(29500 + node);
    if (node > 0) {
      join.set_reached_at("10.0.0.1");
      join.set_address("10.0.0." + std::to_string(1 + node));
    }
    return Say(node, message);
  }
  std::vector<Outgoing> Rejoin(uint32_t node, SessionId session) {
    sessions_[node] = session;
    return Join(node);
  }
  std::vector<Outgoing> Ready(uint32_t node) {
    pb::AgentMessage message;
    message.mutable_ready();
    return Say(node, message);
  }
  std::vector<Outgoing> Finished(uint32_t node) {
    pb::AgentMessage message;
    message.mutable_finished();
    return Say(node, message);
  }
  std::vector<Outgoing> TornDown(uint32_t node) {
    pb::AgentMessage message;
    message.mutable_torn_down();
    return Say(node, message);
  }
  std::vector<Outgoing> Halted(uint32_t node, uint32_t port = 0) {
    pb::AgentMessage message;
    message.mutable_halted()->set_master_port(port);
    return Say(node, message);
  }
  std::vector<Outgoing> Failed(uint32_t node, int rank, bool victim = false) {
    pb::AgentMessage message;
    pb::Cause& cause = *message.mutable_worker_failed()->mutable_cause();
    cause = MakeCause(pb::Cause::WORKER_EXIT, node, ExitCode::kInternal, "");
    cause.set_rank(rank);
    cause.set_exit_code(7);
    cause.set_victim(victim);
    return Say(node, message);
  }
  std::vector<Outgoing> Lose(uint32_t node) { return coordinator_->OnDisconnect(node + 1, now_); }
  std::vector<Outgoing> StopJob(uint32_t node, pb::Cause::Kind kind) {
    pb::AgentMessage message;
    *message.mutable_stop()->mutable_cause() = MakeCause(kind, node, ExitCode::kUnavailable, "why");
    return Say(node, message);
  }
  std::vector<Outgoing> Beat(uint32_t node, uint64_t step = 0) {
    pb::AgentMessage message;
    message.mutable_heartbeat()->set_sent_us(42);
    if (step > 0) {
      for (uint32_t local = 0; local < 2; ++local) {
        pb::RankProgress& rank = *message.mutable_heartbeat()->add_ranks();
        rank.set_rank(2 * node + local);
        rank.set_step(step);
        rank.set_median_step_us(1'000'000);
      }
    }
    return Say(node, message);
  }
  // The last tick's messages, or those of the first tick that had some.
  std::vector<Outgoing> Pass(int ms, const std::vector<uint32_t>& alive) {
    std::vector<Outgoing> out;
    for (; ms > 0 && out.empty(); ms -= 500) {
      now_ += milliseconds(500);
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
  void Restart(const CoordinatorOptions& options) {
    coordinator_ = std::make_unique<Coordinator>(options, now_);
  }

  // The node indexes that got ranks, in order of the messages.
  static std::vector<uint32_t> Assigned(const std::vector<Outgoing>& out) {
    for (const Outgoing& one : out) {
      if (one.message.has_assignment())
        return {one.message.assignment().node_indexes().begin(),
                one.message.assignment().node_indexes().end()};
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
  static const pb::RendezvousMessage* To(SessionId session, const std::vector<Outgoing>& out,
                                         pb::RendezvousMessage::MessageCase kind) {
    for (const Outgoing& one : out) {
      if (one.session == session && one.message.message_case() == kind) return &one.message;
    }
    return nullptr;
  }

  Clock::time_point now_{};
  std::map<uint32_t, SessionId> sessions_;  // where it is not node + 1
  std::unique_ptr<Coordinator> coordinator_ = std::make_unique<Coordinator>(Options(), now_);
};

using Case = pb::RendezvousMessage;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST_F(ElasticTest, AFailedRankHaltsAllAndANewEpochFollows) {
  Start();
  Pass(500, {0, 1, 2, 3});
  const std::vector<Outgoing> halt = Failed(1, 3);
  ASSERT_EQ(halt.size(), 4u);  // the spare too
  for (const Outgoing& one : halt) {
    EXPECT_EQ(one.message.epoch(), 1u);
    EXPECT_EQ(one.message.halt().cause().rank(), 3);
    EXPECT_EQ(one.message.halt().reason(), "restart 1 of 2");
  }
  for (const uint32_t node : {3, 2, 1}) EXPECT_TRUE(Halted(node).empty());
  const std::vector<Outgoing> form = Halted(0, 31'000);
  EXPECT_THAT(Assigned(form), ElementsAre(0, 1, 2));
  EXPECT_EQ(coordinator_->epoch(), 2u);
  const Case* own = To(1, form, Case::kAssignment);
  ASSERT_NE(own, nullptr);
  EXPECT_EQ(own->assignment().restart_count(), 1u);
  EXPECT_EQ(own->assignment().master_port(), 31'000u);  // the new one
  for (uint32_t node = 0; node < 3; ++node) Finished(node);
  for (uint32_t node = 0; node < 3; ++node) EXPECT_TRUE(TornDown(node).empty());
  const std::vector<Outgoing> closed = TornDown(3);
  ASSERT_EQ(closed.size(), 4u);
  EXPECT_TRUE(closed[0].message.closed().complete());
  EXPECT_EQ(closed[0].message.closed().cause().kind(), pb::Cause::NONE);
}

TEST_F(ElasticTest, ALostNodeIsReplacedByASpareAndIsNotMissedAtTheEnd) {
  Start();
  EXPECT_EQ(To(1, Lose(1), Case::kHalt)->halt().cause().kind(), pb::Cause::NODE_LOST);
  Halted(0);
  Halted(2);
  const std::vector<Outgoing> form = Halted(3);
  EXPECT_THAT(Assigned(form), ElementsAre(0, 2, 3));
  EXPECT_THAT(Notices(form), HasSubstr("epoch 2: node0, node2, node3 get ranks; without node1"));
  for (const uint32_t node : {0, 2, 3}) Finished(node);
  TornDown(0);
  TornDown(2);
  const std::vector<Outgoing> closed = TornDown(3);
  EXPECT_TRUE(closed[0].message.closed().complete());
  EXPECT_EQ(closed[0].message.closed().cause().kind(), pb::Cause::NONE);
  EXPECT_THAT(closed[0].message.closed().members(), ElementsAre(0, 2, 3));
}

TEST_F(ElasticTest, ItGoesOnWithFewerNodesThenWaitsForOneThenGivesUp) {
  Start();
  Lose(1);
  Lose(3);
  Halted(0);
  EXPECT_THAT(Assigned(Halted(2)), ElementsAre(0, 2));
  Lose(2);
  EXPECT_THAT(Halted(0), IsEmpty());
  EXPECT_EQ(coordinator_->phase(), Phase::kWaiting);
  EXPECT_THAT(Pass(29'500, {0}), IsEmpty());
  const std::vector<Outgoing> end = Pass(1'000, {0});
  EXPECT_THAT(Notices(end), HasSubstr("only 1 of at least 2 nodes can be had"));
  ASSERT_NE(To(1, end, Case::kStop), nullptr);
  EXPECT_EQ(To(1, end, Case::kStop)->stop().cause().kind(), pb::Cause::NODE_LOST);
  EXPECT_EQ(To(1, end, Case::kStop)->stop().cause().node_index(), 2u);
}

TEST_F(ElasticTest, ANodeThatComesBackOnANewConnectionIsTaken) {
  Start();
  Lose(1);
  Lose(2);
  Lose(3);
  Halted(0);
  EXPECT_THAT(Assigned(Rejoin(2, 20)), ElementsAre(0, 2));
}

TEST_F(ElasticTest, AJoiningNodeWaitsForTheNextRestart) {
  CoordinatorOptions options = Options();
  options.absent_nodes = {1, 3};
  Restart(options);
  Join(0);
  const std::vector<Outgoing> form = Join(2);
  EXPECT_THAT(Assigned(form), ElementsAre(0, 2));
  EXPECT_THAT(Notices(form), HasSubstr("without node1"));
  EXPECT_THAT(Notices(Join(1)), HasSubstr("node1 joined; it may get ranks at the next restart"));
  Failed(2, 2);
  Halted(0);
  Halted(1);
  EXPECT_THAT(Assigned(Halted(2)), ElementsAre(0, 1, 2));
}

TEST_F(ElasticTest, AJoiningNodeMayHaltTheEpochAtOnceAndCostsNoRestart) {
  CoordinatorOptions options = Options();
  options.absent_nodes = {1, 3};
  options.policy.set_on_join(pb::Policy::AT_ONCE);
  Restart(options);
  Join(0);
  Join(2);
  Ready(0);
  Ready(2);
  const std::vector<Outgoing> halt = Join(1);
  EXPECT_EQ(To(1, halt, Case::kHalt)->halt().reason(), "node1 joined");
  EXPECT_EQ(To(1, halt, Case::kHalt)->halt().cause().kind(), pb::Cause::NONE);
  Halted(0);
  Halted(1);
  const std::vector<Outgoing> form = Halted(2);
  EXPECT_THAT(Assigned(form), ElementsAre(0, 1, 2));
  EXPECT_EQ(To(1, form, Case::kAssignment)->assignment().restart_count(), 0u);
  EXPECT_THAT(Join(3), IsEmpty());  // three are enough
}

TEST_F(ElasticTest, NobodyIsHaltedForAJoinerWhenANodeIsDone) {
  CoordinatorOptions options = Options();
  options.absent_nodes = {1, 3};
  options.policy.set_on_join(pb::Policy::AT_ONCE);
  Restart(options);
  Join(0);
  Join(2);
  Ready(0);
  Finished(2);
  EXPECT_EQ(To(1, Join(1), Case::kHalt), nullptr);
}

TEST_F(ElasticTest, AFencedNodeIsRefusedWhateverItSays) {
  Start();
  Finished(0);
  const std::vector<Outgoing> suspect = Pass(3'500, {0, 2, 3});
  EXPECT_EQ(Notices(suspect), "node1 is silent for 3 s; after 6 s it counts as lost\n");
  const std::vector<Outgoing> lost = Pass(3'500, {0, 2, 3});
  ASSERT_NE(To(2, lost, Case::kRefused), nullptr);
  EXPECT_THAT(To(2, lost, Case::kRefused)->refused().cause().message(),
              HasSubstr("node1 was lost: it was silent for 6 s; it is no longer part of the job"));
  EXPECT_NE(To(1, lost, Case::kHalt), nullptr);
  for (const auto& say : {Finished(1), TornDown(1), Halted(1), Beat(1)}) {
    ASSERT_EQ(say.size(), 1u);
    EXPECT_TRUE(say[0].message.has_refused());
    EXPECT_TRUE(say[0].end_session);
    EXPECT_EQ(say[0].session, 2u);
  }
  // Connected anew it takes part again.
  Rejoin(1, 20);
  Halted(0);
  Halted(2);
  EXPECT_THAT(Assigned(Halted(3)), ElementsAre(0, 1, 2));
  EXPECT_EQ(coordinator_->OnDisconnect(2, now_).size(), 0u);  // the old connection ends at last
  EXPECT_EQ(coordinator_->phase(), Phase::kStarting);
}

TEST_F(ElasticTest, ASuspectThatIsHeardAgainIsTold) {
  Start();
  Pass(3'500, {0, 2, 3});
  EXPECT_EQ(Notices(Beat(1)), "node1 is heard again, after 3 s\n");
}

TEST_F(ElasticTest, AMachineThatStoodStillSuspectsNobody) {
  Start();
  now_ += milliseconds(4'000);  // half of dead and more
  EXPECT_THAT(coordinator_->OnTick(now_), IsEmpty());
  now_ += milliseconds(2'900);  // half of suspect and more
  EXPECT_THAT(coordinator_->OnTick(now_), IsEmpty());
}

TEST_F(ElasticTest, WhatWasAnsweredToAnOlderEpochDoesNotCount) {
  Start();
  pb::AgentMessage old;
  old.set_job_id("job");
  old.set_epoch(1);
  old.mutable_worker_failed()->mutable_cause()->set_kind(pb::Cause::WORKER_EXIT);
  Failed(1, 3);
  for (uint32_t node = 0; node < 4; ++node) Halted(node);
  ASSERT_EQ(coordinator_->epoch(), 2u);
  for (uint32_t node = 0; node < 3; ++node) Ready(node);
  EXPECT_THAT(SayFrom(1, old), IsEmpty());
  old.mutable_finished();
  for (uint32_t node = 0; node < 3; ++node) EXPECT_THAT(SayFrom(node + 1, old), IsEmpty());
  EXPECT_EQ(coordinator_->phase(), Phase::kRunning);
}

TEST_F(ElasticTest, ANodeThatDoesNotHaltInTimeIsLost) {
  Start();
  Failed(1, 3);
  Halted(0);
  Halted(1);
  Halted(3);
  EXPECT_THAT(Pass(20'500, {0, 1, 2, 3}), IsEmpty());
  const std::vector<Outgoing> late = Pass(1'000, {0, 1, 2, 3});
  EXPECT_THAT(Assigned(late), ElementsAre(0, 1, 3));
  EXPECT_THAT(To(3, late, Case::kRefused)->refused().cause().message(),
              HasSubstr("node2 was lost: it did not end its ranks in time"));
  EXPECT_EQ(coordinator_->phase(), Phase::kStarting);
}

TEST_F(ElasticTest, ANodeWithProcessesLeftGetsNoRanks) {
  Start();
  Failed(1, 3);
  Halted(0);
  Halted(2);
  Halted(3);
  pb::AgentMessage left;
  left.mutable_halted()->add_left()->set_pid(77);
  const std::vector<Outgoing> form = Say(1, left);
  EXPECT_THAT(Assigned(form), ElementsAre(0, 2, 3));
  EXPECT_THAT(Notices(form), HasSubstr("node1 gets no ranks any more"));
}

TEST_F(ElasticTest, TheBackOffPassesBeforeTheNextEpoch) {
  CoordinatorOptions options = Options();
  options.policy.set_backoff_ms(2'000);
  Restart(options);
  Start();
  EXPECT_EQ(To(1, Failed(1, 3), Case::kHalt)->halt().delay_ms(), 2'000u);
  for (uint32_t node = 0; node < 4; ++node) EXPECT_THAT(Halted(node), IsEmpty());
  EXPECT_THAT(Pass(1'500, {0, 1, 2, 3}), IsEmpty());
  EXPECT_THAT(Assigned(Pass(500, {0, 1, 2, 3})), ElementsAre(0, 1, 2));
}

TEST_F(ElasticTest, WhenRestartsAreUsedUpTheJobEndsWithItsCause) {
  Start();
  for (int restart = 0; restart < 2; ++restart) {
    Failed(1, 3);
    for (uint32_t node = 0; node < 4; ++node) Halted(node);
  }
  const std::vector<Outgoing> end = Failed(1, 2);
  EXPECT_EQ(Notices(end), "no restart: restart 2 of 2 was the last (--max_restarts)\n");
  EXPECT_EQ(To(1, end, Case::kStop)->stop().cause().rank(), 2);
}

TEST_F(ElasticTest, TheLastWordNamesTheRealCauseAndItsVictims) {
  CoordinatorOptions options = Options();
  options.policy.set_max_restarts(0);
  Restart(options);
  Start();
  EXPECT_EQ(To(1, Failed(0, 1, /*victim=*/true), Case::kStop)->stop().cause().rank(), 1);
  Failed(2, 4);
  for (uint32_t node = 0; node < 3; ++node) TornDown(node);
  const std::vector<Outgoing> closed = TornDown(3);
  const Case* own = To(1, closed, Case::kClosed);
  EXPECT_EQ(own->closed().cause().rank(), 4);
  EXPECT_THAT(own->closed().victims(), ElementsAre(1));
  EXPECT_THAT(Notices(closed), HasSubstr("the others look like its victims"));
}

TEST_F(ElasticTest, ANodeWhoseKeeperWasKilledLeavesAndTheOthersGoOn) {
  Start();
  const std::vector<Outgoing> halt = StopJob(1, pb::Cause::NODE_LOST);
  EXPECT_EQ(To(2, halt, Case::kHalt), nullptr);  // it tears down already
  EXPECT_NE(To(1, halt, Case::kHalt), nullptr);
  Halted(0);
  Halted(2);
  EXPECT_THAT(Halted(3), IsEmpty());
  EXPECT_THAT(Assigned(TornDown(1)), ElementsAre(0, 2, 3));
  EXPECT_THAT(Lose(1), IsEmpty());
}

TEST_F(ElasticTest, TheUsersWordEndsAJobThatIsBeingRestarted) {
  Start();
  Failed(1, 3);
  const std::vector<Outgoing> stop = StopJob(2, pb::Cause::INTERRUPTED);
  EXPECT_NE(To(1, stop, Case::kStop), nullptr);
  Failed(1, 2);  // of the epoch that was about to be repaired
  for (uint32_t node = 0; node < 3; ++node) TornDown(node);
  EXPECT_EQ(To(1, TornDown(3), Case::kClosed)->closed().cause().kind(), pb::Cause::INTERRUPTED);
}

TEST_F(ElasticTest, ASpareThatIsLostChangesNothingButIsTold) {
  Start();
  EXPECT_THAT(Notices(Lose(3)), HasSubstr("node3 was lost: its agent vanished; it had no ranks"));
  for (uint32_t node = 0; node < 3; ++node) Finished(node);
  TornDown(0);
  TornDown(1);
  const std::vector<Outgoing> closed = TornDown(2);
  EXPECT_TRUE(To(1, closed, Case::kClosed)->closed().complete());
  EXPECT_EQ(To(1, closed, Case::kClosed)->closed().cause().kind(), pb::Cause::NONE);
}

TEST_F(ElasticTest, AHeartbeatComesBackWithItsTime) {
  Start();
  const std::vector<Outgoing> echo = Beat(1);
  ASSERT_EQ(echo.size(), 1u);
  EXPECT_EQ(echo[0].message.heartbeat().sent_us(), 42u);
}

TEST_F(ElasticTest, AHangIsInspectedOnceAndThenDealtWith) {
  for (const auto on_hang : {pb::Policy::REPORT, pb::Policy::KILL, pb::Policy::RESTART}) {
    CoordinatorOptions options = Options();
    options.policy.set_hang_ms(10'000);
    options.policy.set_on_hang(on_hang);
    Restart(options);
    Start();
    Beat(0, 12);
    Beat(1, 11);
    Beat(2, 12);
    EXPECT_THAT(Pass(9'500, {0, 1, 2, 3}), IsEmpty());
    const std::vector<Outgoing> hang = Pass(500, {0, 1, 2, 3});
    ASSERT_NE(To(2, hang, Case::kInspect), nullptr);
    EXPECT_THAT(To(2, hang, Case::kInspect)->inspect().ranks(), ElementsAre(2, 3));
    EXPECT_EQ(To(1, hang, Case::kInspect), nullptr);
    if (on_hang == pb::Policy::REPORT) {
      EXPECT_EQ(hang.size(), 1u);
      EXPECT_THAT(Pass(20'000, {0, 1, 2, 3}), IsEmpty());
    } else if (on_hang == pb::Policy::KILL) {
      ASSERT_NE(To(1, hang, Case::kStop), nullptr);
      EXPECT_EQ(To(1, hang, Case::kStop)->stop().cause().kind(), pb::Cause::HANG);
      EXPECT_EQ(To(1, hang, Case::kStop)->stop().cause().exit_code(), 75);
      EXPECT_EQ(To(1, hang, Case::kStop)->stop().cause().node_index(), 1u);
    } else {
      ASSERT_NE(To(1, hang, Case::kHalt), nullptr);
      EXPECT_EQ(To(1, hang, Case::kHalt)->halt().cause().kind(), pb::Cause::HANG);
    }
  }
}

TEST_F(ElasticTest, EpochsWithoutANewStepEndTheJob) {
  CoordinatorOptions options = Options();
  options.policy.set_max_restarts(100);
  Restart(options);
  Start();
  for (const bool ends : {false, false, true}) {
    Beat(0, 30);
    const std::vector<Outgoing> out = Failed(1, 3);
    EXPECT_EQ(To(1, out, Case::kStop) != nullptr, ends);
    EXPECT_EQ(Notices(out).find("restart loop without a new step") != std::string::npos, ends);
    for (uint32_t node = 0; node < 4; ++node) Halted(node);
  }
}

}  // namespace
}  // namespace dslaunch
