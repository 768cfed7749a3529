#include "cli/session/move_decision.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

namespace dslaunch {
namespace {

MoveView Waits() { return {.connected = true, .awaits_move = true, .is_part = true}; }
MoveView GoesOn() { return {.connected = true, .is_part = true}; }

TEST(MoveDecisionTest, TheFirstNodeThatWaitsHostsTheNextRendezvous) {
  EXPECT_EQ(DecideMove({GoesOn(), Waits(), Waits()}, 0), 1u);
}

TEST(MoveDecisionTest, ASpareHostsItOnlyWhenNobodyElseWaits) {
  MoveView spare = Waits();
  spare.spare = true;
  EXPECT_EQ(DecideMove({GoesOn(), spare, Waits()}, 0), 2u);
  EXPECT_EQ(DecideMove({GoesOn(), spare}, 0), 1u);
}

TEST(MoveDecisionTest, WhoeverCanBeHeardMustHaveNoticedTheLoss) {
  EXPECT_EQ(DecideMove({GoesOn(), Waits(), GoesOn()}, 0), std::nullopt);
  MoveView silent = GoesOn();
  silent.silent = true;
  EXPECT_EQ(DecideMove({GoesOn(), Waits(), silent}, 0), 1u);
  MoveView over = GoesOn();
  over.connected = false;
  EXPECT_EQ(DecideMove({GoesOn(), Waits(), over}, 0), 1u);
  MoveView newcomer = GoesOn();
  newcomer.is_part = false;
  EXPECT_EQ(DecideMove({GoesOn(), Waits(), newcomer}, 0), 1u);
}

TEST(MoveDecisionTest, NobodyWaits) {
  MoveView over = Waits();
  over.connected = false;
  EXPECT_EQ(DecideMove({GoesOn(), over}, 0), std::nullopt);
}

MoveFacts Facts(std::vector<MoveView> nodes) {
  MoveFacts facts;
  facts.lost.set_epoch(3);
  facts.lost.mutable_cause()->set_message("node0 was lost");
  facts.epoch = 2;
  facts.restarts = 1;
  facts.max_restarts = 3;
  facts.min_nodes = 2;
  facts.nodes = std::move(nodes);
  return facts;
}

TEST(MoveDecisionTest, TheRequestSaysWhatWasBefore) {
  const pb::MoveRequest request = MakeMoveRequest(1, Facts({GoesOn(), Waits(), Waits()}));
  EXPECT_EQ(request.rendezvous_node(), 1u);
  EXPECT_EQ(request.epoch(), 3u);
  EXPECT_EQ(request.restarts(), 2u);
  EXPECT_EQ(request.cause().message(), "node0 was lost");
  EXPECT_EQ(std::vector<uint32_t>(request.absent_nodes().begin(), request.absent_nodes().end()),
            (std::vector<uint32_t>{0}));
}

TEST(MoveDecisionTest, EpochsThatTheLostHalfMayHaveBegunKeepTheirNumbers) {
  // Two nodes are enough: two restarts were left, and each of the two may have joined once.
  EXPECT_EQ(MakeMoveRequest(1, Facts({GoesOn(), Waits(), GoesOn()})).epoch(), 3u + 2u + 2u);
}

TEST(MoveDecisionTest, AnIdleNodeMayHaveBeenGivenRanksThatNeverCame) {
  MoveView idle = Waits();
  idle.was_idle = true;
  EXPECT_EQ(MakeMoveRequest(1, Facts({GoesOn(), idle, Waits()})).epoch(), 3u + 2u + 2u);
}

TEST(MoveDecisionTest, ALostNodeIsGoneOnceItsLeaseAndItsEndAreOver) {
  pb::Timeouts timeouts;
  timeouts.set_dead_ms(6'000);
  timeouts.set_lease_ms(60'000);
  timeouts.set_grace_ms(10'000);
  timeouts.set_teardown_ms(5'000);
  EXPECT_EQ(GoneAfter(timeouts), milliseconds(84'000));
}

}  // namespace
}  // namespace dslaunch
