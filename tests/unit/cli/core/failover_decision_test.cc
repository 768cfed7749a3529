#include "cli/core/failover_decision.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

namespace dslaunch::failover_decision_test {
namespace {

FailoverView Waits() { return {.connected = true, .awaits_failover = true, .is_part = true}; }
FailoverView GoesOn() { return {.connected = true, .is_part = true}; }

TEST(FailoverDecisionTest, ChoosesFirstWaitingNode) {
  EXPECT_EQ(DecideFailover({GoesOn(), Waits(), Waits()}, 0), 1u);
}

TEST(FailoverDecisionTest, ChoosesSpareOnlyWithoutOtherWaitingNode) {
  FailoverView spare = Waits();
  spare.spare = true;
  EXPECT_EQ(DecideFailover({GoesOn(), spare, Waits()}, 0), 2u);
  EXPECT_EQ(DecideFailover({GoesOn(), spare}, 0), 1u);
}

TEST(FailoverDecisionTest, WaitsForConnectedNodesToNoticeLoss) {
  EXPECT_EQ(DecideFailover({GoesOn(), Waits(), GoesOn()}, 0), std::nullopt);
  FailoverView silent = GoesOn();
  silent.silent = true;
  EXPECT_EQ(DecideFailover({GoesOn(), Waits(), silent}, 0), 1u);
  FailoverView over = GoesOn();
  over.connected = false;
  EXPECT_EQ(DecideFailover({GoesOn(), Waits(), over}, 0), 1u);
  FailoverView newcomer = GoesOn();
  newcomer.is_part = false;
  EXPECT_EQ(DecideFailover({GoesOn(), Waits(), newcomer}, 0), 1u);
}

TEST(FailoverDecisionTest, ChoosesHostThatGaveUpOnlyWithoutAnother) {
  EXPECT_EQ(DecideFailover({Waits(), Waits()}, 0), 1u);
  EXPECT_EQ(DecideFailover({Waits(), GoesOn()}, 0), std::nullopt);
  FailoverView over = GoesOn();
  over.connected = false;
  EXPECT_EQ(DecideFailover({Waits(), over}, 0), 0u);
}

TEST(FailoverDecisionTest, HostIsCutOffIfAllOtherNodesLostIt) {
  EXPECT_TRUE(IsHostCutOff({GoesOn(), Waits(), Waits()}, 0));
  EXPECT_FALSE(IsHostCutOff({GoesOn(), Waits(), Waits(), GoesOn()}, 0));
  EXPECT_FALSE(IsHostCutOff({GoesOn(), Waits()}, 0)) << "node 1 may be the one that hears nothing";
}

TEST(FailoverDecisionTest, ChoosesNoNodeIfNoneWaits) {
  FailoverView over = Waits();
  over.connected = false;
  EXPECT_EQ(DecideFailover({GoesOn(), over}, 0), std::nullopt);
}

FailoverInfo Info(std::vector<FailoverView> nodes) {
  FailoverInfo info;
  info.lost.set_attempt(3);
  info.lost.mutable_cause()->set_message("node0 was lost");
  info.attempt = 2;
  info.restarts = 1;
  info.max_restarts = 3;
  info.min_nodes = 2;
  info.nodes = std::move(nodes);
  return info;
}

TEST(FailoverDecisionTest, RequestHasStateBeforeFailover) {
  const pb::FailoverRequest request = MakeFailoverRequest(1, Info({GoesOn(), Waits(), Waits()}));
  EXPECT_EQ(request.rendezvous_node(), 1u);
  EXPECT_EQ(request.attempt(), 3u);
  EXPECT_EQ(request.restarts(), 2u);
  EXPECT_EQ(request.cause().message(), "node0 was lost");
  EXPECT_EQ(std::vector<uint32_t>(request.absent_nodes().begin(), request.absent_nodes().end()),
            (std::vector<uint32_t>{0}));
}

TEST(FailoverDecisionTest, AwaitsNodeThatIsReachedAgain) {
  FailoverView again = GoesOn();
  again.connected = false;
  again.will_join = true;
  const pb::FailoverRequest request = MakeFailoverRequest(1, Info({GoesOn(), Waits(), again}));
  EXPECT_EQ(std::vector<uint32_t>(request.absent_nodes().begin(), request.absent_nodes().end()),
            (std::vector<uint32_t>{0}));
}

TEST(FailoverDecisionTest, SkipsNumbersOfAttemptsThatMayHaveBegun) {
  // Two nodes are enough for a rendezvous: two restarts were left, and each of the two nodes may
  // have joined once.
  EXPECT_EQ(MakeFailoverRequest(1, Info({GoesOn(), Waits(), GoesOn()})).attempt(), 3u + 2u + 2u);
}

TEST(FailoverDecisionTest, CountsIdleNodesForSkippedAttempts) {
  FailoverView idle = Waits();
  idle.was_idle = true;
  EXPECT_EQ(MakeFailoverRequest(1, Info({GoesOn(), idle, Waits()})).attempt(), 3u + 2u + 2u);
}

TEST(FailoverDecisionTest, GoneAfterCoversLeaseAndTeardown) {
  pb::Timeouts timeouts;
  timeouts.set_dead_ms(6'000);
  timeouts.set_lease_ms(60'000);
  timeouts.set_grace_ms(10'000);
  timeouts.set_teardown_ms(5'000);
  EXPECT_EQ(GoneAfter(timeouts), milliseconds(84'000));
}

}  // namespace
}  // namespace dslaunch::failover_decision_test
