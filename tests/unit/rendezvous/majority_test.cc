#include "rendezvous/majority.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/unit/rendezvous/coordinator_fixture.h"

namespace dslaunch {
namespace {

using Time = Majority::Time;

Time At(int64_t ms) { return Time(milliseconds(ms)); }

TEST(MajorityTest, MajorityIsMoreThanHalf) {
  EXPECT_EQ(MajorityOf(3), 2);
  EXPECT_EQ(MajorityOf(4), 3);
  EXPECT_EQ(MajorityOf(5), 3);
}

TEST(MajorityTest, SinceIsTheTimeOfTheSlowestNeededVoter) {
  Majority majority({0, 1, 2, 3, 4}, 5, 3, milliseconds(20'000));
  majority.OnReceived(0, At(10), At(50));
  majority.OnReceived(1, At(20), At(50));
  majority.OnTick();
  EXPECT_FALSE(majority.Since());
  majority.OnReceived(4, At(5), At(50));
  majority.OnTick();
  EXPECT_EQ(majority.Since(), At(5));
  majority.OnReceived(2, At(30), At(50));
  majority.OnReceived(2, At(1), At(50));  // an older time that arrives late
  majority.OnTick();
  EXPECT_EQ(majority.Since(), At(10));
}

TEST(MajorityTest, IgnoresNonVotersAndFutureTimes) {
  Majority majority({0, 1, 2}, 5, 2, milliseconds(20'000));
  majority.OnReceived(3, At(10), At(50));
  majority.OnReceived(4, At(10), At(50));
  majority.OnReceived(7, At(10), At(50));
  majority.OnReceived(0, At(60), At(50));
  majority.OnReceived(1, At(10), At(50));
  majority.OnTick();
  EXPECT_FALSE(majority.Since());
}

// A rendezvous that was elected by three nodes and is hosted by the second of them.
class ElectedTest : public CoordinatorFixture {
 protected:
  ElectedTest() : CoordinatorFixture(Options()) { Pass(1'000); }

  static CoordinatorOptions Options() {
    CoordinatorOptions options = NodesOf({"node1", "node2", "node3"});
    options.policy.set_max_restarts(3);
    options.policy.set_min_nodes(1);
    options.policy.set_max_nodes(3);
    options.rendezvous_node = 1;
    options.absent_nodes = {0};
    options.attempt = 4;
    options.restarts = 1;
    options.attempt_ended_by =
        MakeCause(pb::Cause::NODE_LOST, 0, ExitCode::kUnavailable, "node1 was lost");
    options.voters = {0, 1, 2};
    options.majority = 2;
    return options;
  }
  // Sends a heartbeat that contains the last rendezvous' clock that the node received. Returns the
  // reply.
  pb::Heartbeat Beat(uint32_t node, uint64_t heard_us) {
    coordinator_->SetBootTime(At(now_.time_since_epoch() / milliseconds(1)));
    pb::AgentMessage message = From(node);
    message.mutable_heartbeat()->set_sent_us(1);
    message.mutable_heartbeat()->set_rendezvous_clock_us(heard_us);
    const std::vector<Outgoing> answers = Log(message);
    return answers.empty() ? pb::Heartbeat() : answers.front().message.heartbeat();
  }
  std::vector<Outgoing> Tick() {
    coordinator_->SetBootTime(At(now_.time_since_epoch() / milliseconds(1)));
    return coordinator_->OnTick(now_);
  }
  static bool Assigns(const std::vector<Outgoing>& messages) {
    for (const Outgoing& one : messages) {
      if (one.message.has_assignment()) return true;
    }
    return false;
  }

  // Makes nodes 1 and 2 join and confirm a heartbeat. Returns the rendezvous' clock in that
  // heartbeat.
  uint64_t HearMajority() {
    Join(1);
    Join(2);
    const uint64_t first_us = Beat(1, 0).rendezvous_clock_us();
    Beat(1, first_us);
    Beat(2, first_us);
    return first_us;
  }
};

TEST_F(ElectedTest, StartsAttemptOnceAMajorityConfirms) {
  EXPECT_FALSE(Assigns(Join(1)));
  EXPECT_FALSE(Assigns(Join(2)));
  EXPECT_FALSE(Assigns(Tick()));
  const uint64_t first_us = Beat(1, 0).rendezvous_clock_us();
  EXPECT_FALSE(Beat(1, first_us).has_majority_age_us());
  EXPECT_FALSE(Assigns(Tick()));
  Beat(2, first_us);
  const std::vector<Outgoing> messages = Tick();
  EXPECT_TRUE(Assigns(messages));
  now_ += milliseconds(1'000);
  EXPECT_EQ(Beat(2, first_us).majority_age_us(), 1'000'000);
}

TEST_F(ElectedTest, SendsPeersToEachNode) {
  HearMajority();
  int told = 0;
  for (const Outgoing& one : Tick()) told += one.message.has_peers();
  EXPECT_EQ(told, 2);
}

TEST_F(ElectedTest, SendsPeersToANodeThatJoinsLate) {
  HearMajority();
  ASSERT_TRUE(Assigns(Tick()));
  EXPECT_TRUE(To(0, Join(0), Case::kPeers).has_peers());
}

// Success must not be reported, because the machine may have been suspended, and the other nodes
// may have begun another attempt in the meantime.
TEST_F(ElectedTest, ReportsNoSuccessUnderALeaseThatIsOver) {
  const auto stops = [](const std::vector<Outgoing>& messages) {
    return std::ranges::any_of(messages,
                               [](const Outgoing& one) { return one.message.has_stop(); });
  };
  const uint64_t first_us = HearMajority();
  ASSERT_TRUE(Assigns(Tick()));
  Ready(1);
  Ready(2);
  Finished(1);
  now_ += milliseconds(12'000);
  const uint64_t now_us = Beat(1, first_us).rendezvous_clock_us();
  EXPECT_FALSE(stops(Finished(2)));
  Beat(1, now_us);
  EXPECT_FALSE(stops(Tick()));
  Beat(2, now_us);
  EXPECT_TRUE(stops(Tick()));
}

TEST_F(ElectedTest, ReportsNoSuccessLongAfterTheStartWithoutAMajority) {
  CoordinatorOptions options = Options();
  options.attempt = 0;
  options.absent_nodes.clear();
  options.policy.set_max_nodes(1);
  Begin(options);
  for (const uint32_t node : {1, 2, 0}) Join(node);
  ASSERT_EQ(coordinator_->phase(), Coordinator::Phase::kStarting);
  Ready(0);
  now_ += milliseconds(12'000);
  Beat(1, 0);
  Finished(0);
  EXPECT_EQ(coordinator_->phase(), Coordinator::Phase::kRunning);
}

TEST_F(ElectedTest, EndsItsNodesWithoutAMajority) {
  Join(1);
  now_ += milliseconds(28'000);
  Beat(1, 1);
  EXPECT_FALSE(Assigns(Tick()));
  now_ += milliseconds(1'000);
  bool stops = false;
  for (const Outgoing& one : Tick()) stops |= one.message.has_stop();
  EXPECT_TRUE(stops);
}

}  // namespace
}  // namespace dslaunch
