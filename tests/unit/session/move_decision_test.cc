#include "cli/move_decision.h"

#include <gtest/gtest.h>

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

TEST(MoveDecisionTest, TheRequestSaysWhatWasBefore) {
  pb::RendezvousLost lost;
  lost.set_epoch(3);
  lost.mutable_cause()->set_message("node0 was lost");
  const pb::MoveRequest request = MakeMoveRequest(1, lost, 2, 1, {GoesOn(), Waits(), GoesOn()});
  EXPECT_EQ(request.rendezvous_node(), 1u);
  EXPECT_EQ(request.epoch(), 3u);
  EXPECT_EQ(request.restarts(), 2u);
  EXPECT_EQ(request.cause().message(), "node0 was lost");
  EXPECT_EQ(std::vector<uint32_t>(request.absent_nodes().begin(), request.absent_nodes().end()),
            (std::vector<uint32_t>{0, 2}));
}

TEST(MoveDecisionTest, ALostNodeIsGoneOnceItsLeaseAndItsEndAreOver) {
  pb::Timeouts timeouts;
  timeouts.set_lease_ms(60'000);
  timeouts.set_grace_ms(10'000);
  timeouts.set_teardown_ms(5'000);
  EXPECT_EQ(GoneAfter(timeouts), milliseconds(75'000));
}

}  // namespace
}  // namespace dslaunch
