#include "agent/supervisor/graceful_kill.h"

#include <gtest/gtest.h>

namespace dslaunch::graceful_kill_test {
namespace {

using std::chrono::seconds;

const Clock::time_point kStart{seconds(1000)};
const GracefulKillOptions kOptions{.grace = seconds(10), .teardown = seconds(5)};

GracefulKillDecision Decide(const GracefulKillState& state, milliseconds after, size_t ranks,
                            size_t apart = 0) {
  return DecideGracefulKill(state, kStart + after, {.ranks = ranks, .apart = apart}, kOptions);
}

TEST(GracefulKill, BeginsWithTermAndWaitsForTheGrace) {
  const GracefulKillDecision first = Decide({}, milliseconds(0), 3);
  EXPECT_EQ(first.action, GracefulKillAction::kSignal);
  EXPECT_EQ(first.signal, SIGTERM);
  EXPECT_EQ(first.wake, kStart + seconds(10));
  const GracefulKillDecision within = Decide(first.next, milliseconds(9999), 3);
  EXPECT_EQ(within.action, GracefulKillAction::kNone);
  EXPECT_EQ(within.wake, kStart + seconds(10));
}

TEST(GracefulKill, TermFollowsAnotherFirstSignalBeforeKill) {
  const GracefulKillDecision first = Decide({.first_signal = SIGINT}, milliseconds(0), 3);
  EXPECT_EQ(first.action, GracefulKillAction::kSignal);
  EXPECT_EQ(first.signal, SIGINT);
  EXPECT_EQ(first.wake, kStart + seconds(8));
  EXPECT_EQ(Decide(first.next, milliseconds(7999), 3).action, GracefulKillAction::kNone);
  const GracefulKillDecision term = Decide(first.next, seconds(8), 3);
  EXPECT_EQ(term.action, GracefulKillAction::kSignal);
  EXPECT_EQ(term.signal, SIGTERM);
  EXPECT_EQ(term.wake, kStart + seconds(10));
  EXPECT_EQ(Decide(term.next, milliseconds(9999), 3).action, GracefulKillAction::kNone);
  EXPECT_EQ(Decide(term.next, seconds(10), 3).action, GracefulKillAction::kKill);
}

// SIGTERM follows, because processes left by the ranks, such as children of a shell, may ignore
// SIGINT.
TEST(GracefulKill, TermFollowsAtOnceWhenTheRanksHaveEnded) {
  GracefulKillState state = Decide({.first_signal = SIGINT}, milliseconds(0), 3).next;
  state.ranks_ended = true;
  const GracefulKillDecision term = Decide(state, milliseconds(10), 1);
  EXPECT_EQ(term.action, GracefulKillAction::kSignal);
  EXPECT_EQ(term.signal, SIGTERM);
  EXPECT_EQ(Decide(term.next, milliseconds(20), 1).action, GracefulKillAction::kNone);
}

// SIGTERM is repeated, because a child that a shell with a trap has just forked loses the signal.
TEST(GracefulKill, RepeatsTermAfterTheRanksHaveEnded) {
  GracefulKillState state = Decide({}, milliseconds(0), 3).next;
  state.ranks_ended = true;
  EXPECT_EQ(Decide(state, milliseconds(10), 1).action, GracefulKillAction::kNone);
  EXPECT_EQ(Decide(state, milliseconds(10), 1).wake, kStart + seconds(1));
  const GracefulKillDecision again = Decide(state, seconds(1), 1);
  EXPECT_EQ(again.action, GracefulKillAction::kSignal);
  EXPECT_EQ(again.signal, SIGTERM);
  EXPECT_EQ(again.wake, kStart + seconds(2));
  const GracefulKillDecision last = Decide(again.next, milliseconds(9500), 1);
  EXPECT_EQ(last.action, GracefulKillAction::kSignal);
  EXPECT_EQ(last.wake, kStart + seconds(10));
  EXPECT_EQ(Decide(last.next, seconds(10), 1).action, GracefulKillAction::kKill);
}

TEST(GracefulKill, KillsRepeatedlyAfterGraceUntilTimeLimit) {
  GracefulKillDecision decision = Decide({}, milliseconds(0), 2);
  decision = Decide(decision.next, seconds(10), 1);
  EXPECT_EQ(decision.action, GracefulKillAction::kKill);
  ASSERT_TRUE(decision.wake);
  EXPECT_GT(*decision.wake, kStart + seconds(10));
  EXPECT_LE(*decision.wake, kStart + milliseconds(10'100));
  decision = Decide(decision.next, milliseconds(14'999), 1);
  EXPECT_EQ(decision.action, GracefulKillAction::kKill);
  EXPECT_EQ(decision.wake, kStart + seconds(15));
  decision = Decide(decision.next, seconds(15), 1);
  EXPECT_EQ(decision.action, GracefulKillAction::kGiveUp);
  EXPECT_FALSE(decision.wake);
}

TEST(GracefulKill, IsDoneWhenNoProcessIsLeft) {
  EXPECT_EQ(Decide({}, milliseconds(0), 0).action, GracefulKillAction::kDone);
  const GracefulKillState termed = Decide({}, milliseconds(0), 1).next;
  EXPECT_EQ(Decide(termed, milliseconds(1), 0).action, GracefulKillAction::kDone);
  const GracefulKillState killed = Decide(termed, seconds(10), 1).next;
  EXPECT_EQ(Decide(killed, seconds(60), 0).action, GracefulKillAction::kDone);
}

TEST(GracefulKill, KillNowSkipsTheGraceAtAnyTime) {
  EXPECT_EQ(Decide({.kill_now = true}, milliseconds(0), 1).action, GracefulKillAction::kKill);
  GracefulKillState termed = Decide({}, milliseconds(0), 1).next;
  termed.kill_now = true;
  EXPECT_EQ(Decide(termed, milliseconds(5), 1).action, GracefulKillAction::kKill);
}

TEST(GracefulKill, KillNowDoesNotExtendTheTeardown) {
  GracefulKillState state = Decide({.kill_now = true}, milliseconds(0), 1).next;
  state = Decide(state, milliseconds(4000), 1).next;
  EXPECT_EQ(Decide(state, milliseconds(5000), 1).action, GracefulKillAction::kGiveUp);
}

TEST(GracefulKill, KillFollowsTermWithoutGrace) {
  const GracefulKillOptions none{.grace = milliseconds(0), .teardown = seconds(1)};
  const GracefulKillDecision first = DecideGracefulKill({}, kStart, {.ranks = 1}, none);
  EXPECT_EQ(first.action, GracefulKillAction::kSignal);
  EXPECT_EQ(DecideGracefulKill(first.next, *first.wake, {.ranks = 1}, none).action,
            GracefulKillAction::kKill);
}

TEST(GracefulKill, SignalsOnlyTheRanksWhileTheyLive) {
  GracefulKillDecision decision = Decide({.first_signal = SIGINT}, milliseconds(0), 1, 1);
  EXPECT_EQ(decision.action, GracefulKillAction::kSignal);
  EXPECT_EQ(decision.targets, KillTargets::kRanks);
  decision = Decide(decision.next, seconds(8), 1, 1);
  EXPECT_EQ(decision.signal, SIGTERM);
  EXPECT_EQ(decision.targets, KillTargets::kRanks);
  decision = Decide(decision.next, seconds(10), 1, 1);
  EXPECT_EQ(decision.action, GracefulKillAction::kKill);
  EXPECT_EQ(decision.targets, KillTargets::kRanks);
}

TEST(GracefulKill, WaitsForProcessesApartBeforeTerm) {
  const GracefulKillState state = Decide({}, milliseconds(0), 1, 1).next;
  GracefulKillDecision decision = Decide(state, seconds(2), 0, 1);
  EXPECT_EQ(decision.action, GracefulKillAction::kNone);
  EXPECT_EQ(decision.wake, kStart + milliseconds(2'500));
  decision = Decide(decision.next, milliseconds(2'500), 0, 1);
  EXPECT_EQ(decision.action, GracefulKillAction::kSignal);
  EXPECT_EQ(decision.signal, SIGTERM);
  EXPECT_EQ(decision.targets, KillTargets::kAll);
  EXPECT_EQ(decision.wake, kStart + milliseconds(3'500));
  decision = Decide(decision.next, seconds(10), 0, 1);
  EXPECT_EQ(decision.action, GracefulKillAction::kKill);
  EXPECT_EQ(decision.wake, kStart + milliseconds(10'050));
}

TEST(GracefulKill, GivesProcessesThatServeMoreTime) {
  const LeftCount server{.ranks = 0, .apart = 1, .serves = true};
  const GracefulKillState state = Decide({}, milliseconds(0), 1, 1).next;
  GracefulKillDecision decision = DecideGracefulKill(state, kStart + seconds(2), server, kOptions);
  EXPECT_EQ(decision.action, GracefulKillAction::kNone);
  EXPECT_EQ(decision.wake, kStart + seconds(5));
  const GracefulKillState killed = Decide(state, seconds(10), 1, 1).next;
  decision = DecideGracefulKill(killed, kStart + milliseconds(10'010), server, kOptions);
  EXPECT_EQ(decision.action, GracefulKillAction::kNone);
  EXPECT_EQ(decision.wake, kStart + milliseconds(12'500)) << "half of the time for teardown";
}

// Processes that serve ranks are killed soon after the ranks, because a rank that ignores SIGTERM
// leaves them no time within the grace period.
TEST(GracefulKill, KillsProcessesApartSoonAfterTheRanks) {
  GracefulKillDecision decision = Decide(Decide({}, milliseconds(0), 1, 1).next, seconds(10), 1, 1);
  EXPECT_EQ(decision.targets, KillTargets::kRanks);
  decision = Decide(decision.next, milliseconds(10'010), 0, 1);
  EXPECT_EQ(decision.action, GracefulKillAction::kNone);
  EXPECT_EQ(decision.wake, kStart + milliseconds(10'510));
  decision = Decide(decision.next, milliseconds(10'510), 0, 1);
  EXPECT_EQ(decision.signal, SIGTERM);
  EXPECT_EQ(decision.wake, kStart + milliseconds(10'700));
  decision = Decide(decision.next, milliseconds(10'700), 0, 1);
  EXPECT_EQ(decision.action, GracefulKillAction::kKill);
  EXPECT_EQ(decision.targets, KillTargets::kAll);
  EXPECT_EQ(Decide(decision.next, seconds(15), 0, 1).action, GracefulKillAction::kGiveUp);
}

TEST(GracefulKill, KillsProcessesApartBeforeTheTimeLimit) {
  const GracefulKillState state = Decide({}, milliseconds(0), 1, 1).next;
  // The supervisor could not run for a while.
  GracefulKillDecision decision = Decide(Decide(state, seconds(10), 0, 1).next, seconds(20), 0, 1);
  EXPECT_EQ(decision.action, GracefulKillAction::kKill);
  EXPECT_EQ(decision.targets, KillTargets::kAll);
  decision = Decide(decision.next, milliseconds(20'499), 0, 1);
  EXPECT_EQ(decision.action, GracefulKillAction::kKill);
  EXPECT_EQ(Decide(decision.next, milliseconds(20'500), 0, 1).action, GracefulKillAction::kGiveUp);
}

TEST(GracefulKill, KillsProcessesApartIfARankSurvivesSigkill) {
  GracefulKillDecision decision = Decide(Decide({}, milliseconds(0), 1, 1).next, seconds(10), 1, 1);
  decision = Decide(decision.next, seconds(11), 1, 1);
  EXPECT_EQ(decision.action, GracefulKillAction::kKill);
  EXPECT_EQ(decision.targets, KillTargets::kAll);
}

}  // namespace
}  // namespace dslaunch::graceful_kill_test
