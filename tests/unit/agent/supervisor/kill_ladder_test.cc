#include "agent/supervisor/kill_ladder.h"

#include <gtest/gtest.h>

namespace dslaunch {
namespace {

using std::chrono::seconds;

const Clock::time_point kStart{seconds(1000)};
const LadderOptions kOptions{.grace = seconds(10), .teardown = seconds(5)};

LadderDecision Decide(const LadderState& state, milliseconds after, size_t alive) {
  return DecideLadder(state, kStart + after, alive, kOptions);
}

TEST(KillLadder, BeginsWithTermAndWaitsForTheGrace) {
  const LadderDecision first = Decide({}, milliseconds(0), 3);
  EXPECT_EQ(first.action, LadderAction::kTerm);
  EXPECT_EQ(first.wake, kStart + seconds(10));
  const LadderDecision within = Decide(first.next, milliseconds(9999), 3);
  EXPECT_EQ(within.action, LadderAction::kNone);
  EXPECT_EQ(within.wake, kStart + seconds(10));
}

TEST(KillLadder, KillsAtTheEndOfTheGraceAndAgainUntilItGivesUp) {
  LadderDecision decision = Decide({}, milliseconds(0), 2);
  decision = Decide(decision.next, seconds(10), 1);
  EXPECT_EQ(decision.action, LadderAction::kKill);
  ASSERT_TRUE(decision.wake);
  EXPECT_GT(*decision.wake, kStart + seconds(10));
  EXPECT_LE(*decision.wake, kStart + milliseconds(10'100));
  decision = Decide(decision.next, milliseconds(14'999), 1);
  EXPECT_EQ(decision.action, LadderAction::kKill);
  EXPECT_EQ(decision.wake, kStart + seconds(15));
  decision = Decide(decision.next, seconds(15), 1);
  EXPECT_EQ(decision.action, LadderAction::kGiveUp);
  EXPECT_FALSE(decision.wake);
}

TEST(KillLadder, IsDoneAsSoonAsNothingIsLeft) {
  EXPECT_EQ(Decide({}, milliseconds(0), 0).action, LadderAction::kDone);
  const LadderState termed = Decide({}, milliseconds(0), 1).next;
  EXPECT_EQ(Decide(termed, milliseconds(1), 0).action, LadderAction::kDone);
  const LadderState killed = Decide(termed, seconds(10), 1).next;
  EXPECT_EQ(Decide(killed, seconds(60), 0).action, LadderAction::kDone);
}

TEST(KillLadder, KillNowSkipsTheGraceAtAnyTime) {
  EXPECT_EQ(Decide({.kill_now = true}, milliseconds(0), 1).action, LadderAction::kKill);
  LadderState termed = Decide({}, milliseconds(0), 1).next;
  termed.kill_now = true;
  EXPECT_EQ(Decide(termed, milliseconds(5), 1).action, LadderAction::kKill);
}

TEST(KillLadder, KillNowDoesNotLengthenTheTeardown) {
  LadderState state = Decide({.kill_now = true}, milliseconds(0), 1).next;
  state = Decide(state, milliseconds(4000), 1).next;
  EXPECT_EQ(Decide(state, milliseconds(5000), 1).action, LadderAction::kGiveUp);
}

TEST(KillLadder, WithoutGraceTermIsFollowedByKill) {
  const LadderOptions none{.grace = milliseconds(0), .teardown = seconds(1)};
  const LadderDecision first = DecideLadder({}, kStart, 1, none);
  EXPECT_EQ(first.action, LadderAction::kTerm);
  EXPECT_EQ(DecideLadder(first.next, *first.wake, 1, none).action, LadderAction::kKill);
}

}  // namespace
}  // namespace dslaunch
