#include "cli/outcome.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "rendezvous/cause.h"

namespace dslaunch {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

NodeEnd Done(const std::string& name, const pb::Cause& cause = {}) {
  NodeEnd end;
  end.name = name;
  end.done = true;
  end.teardown_complete = true;
  end.outcome = cause;
  return end;
}

NodeEnd Lost(const std::string& name, const std::string& reason) {
  NodeEnd end;
  end.name = name;
  end.lost_reason = reason;
  return end;
}

pb::Cause Exit7() {
  pb::Cause cause = MakeCause(pb::Cause::WORKER_EXIT, 1, ExitCode::kInternal, "");
  cause.set_exit_code(7);
  cause.set_rank(3);
  return cause;
}

TEST(OutcomeTest, ZeroNeedsEveryNodeDoneAndEmpty) {
  const JobEnd end = DecideJobEnd(std::nullopt, {Done("a"), Done("b")});
  EXPECT_EQ(end.exit_code, 0);
  EXPECT_THAT(end.remarks, IsEmpty());
}

TEST(OutcomeTest, ANodeThatNeverSaidDoneIsNeverSuccess) {
  const JobEnd end = DecideJobEnd(std::nullopt, {Done("a"), Lost("b", "cable pulled")});
  EXPECT_EQ(end.exit_code, 69);
  EXPECT_EQ(end.cause.message(), "b was lost: cable pulled");
  EXPECT_THAT(end.remarks, IsEmpty());
}

TEST(OutcomeTest, AnIncompleteTeardownIsNeverSuccess) {
  std::vector<NodeEnd> nodes = {Done("a"), Done("b")};
  nodes[0].teardown_complete = false;
  EXPECT_EQ(DecideJobEnd(std::nullopt, nodes).exit_code, 75);
  nodes[0].teardown_complete = true;
  nodes[1].left_pids = {12, 34};
  const JobEnd end = DecideJobEnd(std::nullopt, nodes);
  EXPECT_EQ(end.exit_code, 75);
  EXPECT_THAT(end.remarks, ElementsAre(HasSubstr("b: could not end process 12 34")));
}

TEST(OutcomeTest, TheRanksCodeIsTheJobs) {
  EXPECT_EQ(DecideJobEnd(std::nullopt, {Done("a", Exit7()), Done("b", Exit7())}).exit_code, 7);
}

TEST(OutcomeTest, ACauseWithoutACodeIsStillNotZero) {
  pb::Cause cause = Exit7();
  cause.set_exit_code(0);
  EXPECT_EQ(DecideJobEnd(std::nullopt, {Done("a", cause)}).exit_code, 70);
}

TEST(OutcomeTest, WhatTheRendezvousDecidedBeatsWhatANodeGuessed) {
  const pb::Cause guess = MakeCause(pb::Cause::NODE_LOST, 0, ExitCode::kUnavailable, "a was lost");
  EXPECT_EQ(DecideJobEnd(std::nullopt, {Done("a", guess), Done("b", Exit7())}).exit_code, 7);
}

TEST(OutcomeTest, ANodeThatLostUsIsALostNode) {
  const pb::Cause lost_us =
      MakeCause(pb::Cause::FRONT_END_LOST, 1, ExitCode::kUnavailable, "the front end vanished");
  const JobEnd end = DecideJobEnd(std::nullopt, {Done("a", lost_us), Lost("b", "cable pulled")});
  EXPECT_EQ(end.exit_code, 69);
  EXPECT_EQ(end.cause.message(), "b was lost: cable pulled");
}

TEST(OutcomeTest, ALostNodeIsExplainedByItsOwnLastWords) {
  const pb::Cause seen =
      MakeCause(pb::Cause::NODE_LOST, 1, ExitCode::kUnavailable, "b was lost: its agent vanished");
  std::vector<NodeEnd> nodes = {Done("a", seen), Lost("b", "the connection broke off")};
  EXPECT_EQ(DecideJobEnd(std::nullopt, nodes).cause.message(), "b was lost: its agent vanished");
  nodes[1].last_words = "agent (pid 5) was killed by SIGKILL";
  const JobEnd end = DecideJobEnd(std::nullopt, nodes);
  EXPECT_EQ(end.exit_code, 69);
  EXPECT_EQ(end.cause.message(), "b was lost: agent (pid 5) was killed by SIGKILL");
}

TEST(OutcomeTest, TheUsersInterruptionIsTheCauseAndLosesNoRemark) {
  pb::Cause interrupt =
      MakeCause(pb::Cause::INTERRUPTED, 0, ExitCode::kInterrupted, "interrupted by SIGINT");
  const JobEnd end = DecideJobEnd(interrupt, {Done("a", interrupt), Lost("b", "gone")});
  EXPECT_EQ(end.exit_code, 130);
  EXPECT_THAT(end.remarks, ElementsAre("b was lost: gone"));
}

}  // namespace
}  // namespace dslaunch
