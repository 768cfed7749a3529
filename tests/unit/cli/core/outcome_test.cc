#include "cli/core/outcome.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "proto/wire/cause.h"
#include "proto/wire/node_set.h"

namespace dslaunch::outcome_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Makes the end of a node with one rank, which succeeded unless `cause` is set.
NodeEnd Done(const std::string& name, const pb::Cause& cause = {}) {
  NodeEnd end;
  end.name = name;
  end.done.emplace().set_teardown_complete(true);
  end.outcome = cause;
  end.ranks = {1, 1, cause.kind() == pb::Cause::NONE ? 1u : 0u};
  return end;
}

// Makes the end of a node that received the final status.
NodeEnd Closed(const std::string& name, const pb::Cause& cause,
               const std::vector<uint32_t>& members) {
  NodeEnd end = Done(name, cause);
  end.done->set_completed(true);
  *end.done->mutable_cause() = cause;
  *end.done->mutable_members() = ToNodeSet(members);
  return end;
}

NodeEnd Absent(const std::string& name) {
  NodeEnd end;
  end.name = name;
  end.absent = true;
  return end;
}

JobInfo Info(std::vector<NodeEnd> nodes, std::vector<uint32_t> members = {}) {
  JobInfo info;
  info.world_size = static_cast<uint32_t>(members.empty() ? nodes.size() : members.size());
  info.nodes = std::move(nodes);
  info.members = std::move(members);
  return info;
}

JobEnd Decide(std::vector<NodeEnd> nodes, std::vector<uint32_t> members = {}) {
  return DecideJobEnd(Info(std::move(nodes), std::move(members)));
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

TEST(OutcomeTest, SucceedsIfEveryNodeIsDoneAndEmpty) {
  const JobEnd end = Decide({Done("a"), Done("b")});
  EXPECT_EQ(end.exit_code, 0);
  EXPECT_THAT(end.remarks, IsEmpty());
}

// The exit code does not depend on which signal requested the save, or whether the program's own
// time limit did.
TEST(OutcomeTest, EndsWith85IfAllRanksSaved) {
  pb::Cause interrupted =
      MakeCause(pb::Cause::INTERRUPTED, 0, ExitCode::kInterrupted, "interrupted by SIGINT");
  interrupted.set_exit_code(130);
  pb::Cause exit_85 = MakeCause(pb::Cause::WORKER_EXIT, 0, ExitCode::kPreempted, "");
  exit_85.set_rank(0);
  for (const pb::Cause& cause : {interrupted, exit_85}) {
    JobInfo info = Info({Done("a", cause), Done("b", cause)});
    if (cause.kind() == pb::Cause::INTERRUPTED) info.interrupted = cause;
    for (NodeEnd& node : info.nodes) node.ranks = {.attempt = 2, .count = 2, .saved = 2};
    EXPECT_EQ(DecideJobEnd(info).exit_code, 85);
    EXPECT_TRUE(DecideJobEnd(info).saved_on_request);
    info.nodes[1].ranks.saved = 1;  // the node's other rank has lost its state
    EXPECT_EQ(DecideJobEnd(info).exit_code, cause.exit_code());
    EXPECT_FALSE(DecideJobEnd(info).saved_on_request);
    info.nodes[1].ranks = {.attempt = 1, .count = 2, .saved = 2};
    EXPECT_FALSE(DecideJobEnd(info).saved_on_request);
  }
  JobInfo failed = Info({Done("a", Exit7())});
  failed.nodes[0].ranks = {.attempt = 1, .count = 1, .saved = 1};
  EXPECT_EQ(DecideJobEnd(failed).exit_code, 7);
}

TEST(OutcomeTest, FailsIfNodeIsNotDone) {
  const JobEnd end = Decide({Done("a"), Lost("b", "cable pulled")});
  EXPECT_EQ(end.exit_code, 69);
  EXPECT_EQ(end.cause.message(), "b was lost: cable pulled");
  EXPECT_THAT(end.remarks, IsEmpty());
}

TEST(OutcomeTest, FailsOnIncompleteTeardown) {
  std::vector<NodeEnd> nodes = {Done("a"), Done("b")};
  nodes[0].done->set_teardown_complete(false);
  EXPECT_EQ(Decide(nodes).exit_code, 75);
  nodes[0].done->set_teardown_complete(true);
  nodes[1].done->add_left()->set_pid(12);
  EXPECT_EQ(Decide(nodes).exit_code, 75);
}

TEST(OutcomeTest, ReturnsExitCodeOfRank) {
  EXPECT_EQ(Decide({Done("a", Exit7()), Done("b", Exit7())}).exit_code, 7);
}

TEST(OutcomeTest, CauseWithoutExitCodeIsInternalError) {
  pb::Cause cause = Exit7();
  cause.set_exit_code(0);
  EXPECT_EQ(Decide({Done("a", cause)}).exit_code, 70);
}

TEST(OutcomeTest, PrefersCauseOfRendezvousToNodes) {
  const pb::Cause guess = MakeCause(pb::Cause::NODE_LOST, 0, ExitCode::kUnavailable, "a was lost");
  EXPECT_EQ(Decide({Done("a", guess), Done("b", Exit7())}).exit_code, 7);
}

TEST(OutcomeTest, NodeThatLostFrontEndIsLost) {
  const pb::Cause lost_us =
      MakeCause(pb::Cause::FRONT_END_LOST, 1, ExitCode::kUnavailable, "the front end vanished");
  const JobEnd end = Decide({Done("a", lost_us), Lost("b", "cable pulled")});
  EXPECT_EQ(end.exit_code, 69);
  EXPECT_EQ(end.cause.message(), "b was lost: cable pulled");
}

TEST(OutcomeTest, ExplainsLostNodeByItsLastOutput) {
  const pb::Cause seen = MakeCause(pb::Cause::NODE_LOST, 1, ExitCode::kUnavailable,
                                   "b was lost: its agent disconnected");
  std::vector<NodeEnd> nodes = {Done("a", seen), Lost("b", "the connection broke")};
  EXPECT_EQ(Decide(nodes).cause.message(), "b was lost: its agent disconnected");
  nodes[1].last_output = "agent (pid 5) was killed by SIGKILL";
  const JobEnd end = Decide(nodes);
  EXPECT_EQ(end.exit_code, 69);
  EXPECT_EQ(end.cause.message(), "b was lost: agent (pid 5) was killed by SIGKILL");
}

TEST(OutcomeTest, InterruptIsCauseAndKeepsRemarks) {
  pb::Cause interrupt =
      MakeCause(pb::Cause::INTERRUPTED, 0, ExitCode::kInterrupted, "interrupted by SIGINT");
  const JobEnd end = DecideJobEnd({interrupt, {Done("a", interrupt), Lost("b", "gone")}, {}, {}});
  EXPECT_EQ(end.exit_code, 130);
  EXPECT_THAT(end.remarks, ElementsAre("b was lost: gone"));
}

TEST(OutcomeTest, CancelledJobIgnoresSignalsOfSlurm) {
  pb::Cause killed = MakeCause(pb::Cause::WORKER_SIGNAL, 0, ExitCode::kOk, "");
  killed.set_signal(SIGTERM);
  killed.set_exit_code(143);
  const pb::Cause lost =
      MakeCause(pb::Cause::NODE_LOST, 0, ExitCode::kUnavailable, "a was lost: gone");
  const pb::Cause hangup =
      MakeCause(pb::Cause::INTERRUPTED, 0, ExitCode::kInterrupted, "interrupted by SIGHUP");
  for (const pb::Cause& effect : {killed, lost, hangup}) {
    JobInfo info = Info({Done("a", effect), Lost("b", "the connection to it broke")});
    info.nodes[1].last_output = "slurmstepd: error: *** STEP 39.0 ON a CANCELLED AT x ***";
    info.cancelled = "STEP 39.0 ON a CANCELLED AT x";
    const JobEnd end = DecideJobEnd(info);
    EXPECT_EQ(end.cause.message(), "Slurm ended the job: STEP 39.0 ON a CANCELLED AT x");
    EXPECT_EQ(end.exit_code, 143);
    EXPECT_THAT(end.remarks, ElementsAre("b was lost: the connection to it broke"));
  }
}

TEST(OutcomeTest, KeepsOwnErrorOfRankOfCancelledJob) {
  JobInfo info = Info({Done("a", Exit7())});
  info.cancelled = "STEP 39.0 ON a CANCELLED AT x";
  EXPECT_EQ(DecideJobEnd(info).exit_code, 7);
}

TEST(OutcomeTest, CancelledJobOfSavedRanksEndsWith85) {
  JobInfo info = Info({Done("a")});
  info.interrupted =
      MakeCause(pb::Cause::INTERRUPTED, 0, ExitCode::kInterrupted, "interrupted by SIGTERM");
  info.cancelled = "STEP 39.0 ON a CANCELLED AT x";
  info.nodes[0].ranks = {.attempt = 1, .count = 1, .saved = 1};
  const JobEnd end = DecideJobEnd(info);
  EXPECT_EQ(end.exit_code, 85);
  EXPECT_TRUE(end.saved_on_request);
}

TEST(OutcomeTest, FinalCauseReplacesFirstReport) {
  pb::Cause first = Exit7();
  first.set_rank(0);
  first.set_exit_code(1);
  NodeEnd a = Closed("a", Exit7(), {0, 1});
  a.outcome = first;
  a.done->add_victims(0);
  const JobEnd end = Decide({a, Done("b", first)});
  EXPECT_EQ(end.exit_code, 7);
  EXPECT_EQ(end.cause.rank(), 3);
  EXPECT_THAT(end.victims, ElementsAre(0));
  EXPECT_THAT(end.members, ElementsAre(0, 1));
}

TEST(OutcomeTest, RemarksNodesLostBeforeFinalAttempt) {
  const JobEnd end = Decide(
      {Closed("a", {}, {0, 2}), Lost("b", "cable pulled"), Closed("c", {}, {0, 2}), Absent("d")},
      {0, 2});
  EXPECT_EQ(end.exit_code, 0);
  EXPECT_THAT(end.members, ElementsAre(0, 2));
  EXPECT_THAT(end.remarks, ElementsAre("b was lost: cable pulled"));
}

TEST(OutcomeTest, FailsIfMemberIsLost) {
  const JobEnd end = Decide({Closed("a", {}, {0, 1}), Lost("b", "cable pulled")}, {0, 1});
  EXPECT_EQ(end.exit_code, 69);
  EXPECT_EQ(end.cause.message(), "b was lost: cable pulled");
}

TEST(OutcomeTest, FailsIfMemberIsNotEmpty) {
  NodeEnd b = Closed("b", {}, {0, 1});
  b.done->add_left()->set_pid(12);
  EXPECT_EQ(Decide({Closed("a", {}, {0, 1}), b}, {0, 1}).exit_code, 75);
}

TEST(OutcomeTest, UsesNewestSeenAttemptWithoutFinalStatus) {
  pb::Cause refused = MakeCause(pb::Cause::START_FAILED, 1, ExitCode::kTimedOut, "b is late");
  EXPECT_EQ(Decide({Done("a"), Done("b", refused)}, {0}).exit_code, 0);
  EXPECT_THAT(Decide({Done("a"), Done("b", refused)}, {0}).remarks, ElementsAre("b is late"));
  EXPECT_EQ(Decide({Done("a"), Done("b", refused)}, {0, 1}).exit_code, 75);
}

TEST(OutcomeTest, FailsIfNoNodeWasReached) { EXPECT_NE(Decide({Absent("a")}).exit_code, 0); }

TEST(OutcomeTest, RemarksLossesOfReconnectedNodes) {
  JobInfo info = Info({Closed("a", {}, {0})}, {0});
  info.losses = {"a was lost: power cut"};
  const JobEnd end = DecideJobEnd(info);
  EXPECT_EQ(end.exit_code, 0);
  EXPECT_THAT(end.remarks, ElementsAre("a was lost: power cut"));
}

TEST(OutcomeTest, FailsUnlessEveryRankReportedSuccess) {
  const auto decide = [](const RankReports& reports, uint32_t world_size) {
    JobInfo info = Info({Closed("a", {}, {0, 1}), Closed("b", {}, {0, 1})}, {0, 1});
    info.nodes[1].ranks = reports;
    info.world_size = world_size;
    return DecideJobEnd(info);
  };
  EXPECT_EQ(decide({.attempt = 1, .count = 1, .succeeded = 1}, 2).exit_code, 0);
  // The cases: no report, a rank without an end, another attempt, and other ranks.
  EXPECT_EQ(decide({}, 2).exit_code, 70);
  EXPECT_EQ(decide({.attempt = 1, .count = 2, .succeeded = 1}, 3).exit_code, 70);
  EXPECT_EQ(decide({.attempt = 2, .count = 1, .succeeded = 1}, 2).exit_code, 70);
  EXPECT_EQ(decide({.attempt = 1, .count = 1, .succeeded = 1}, 3).exit_code, 70);
  const JobEnd end = decide({.attempt = 1, .count = 2, .succeeded = 1}, 3);
  EXPECT_EQ(end.cause.kind(), pb::Cause::INTERNAL);
  EXPECT_EQ(end.cause.node_index(), 1u);
  EXPECT_THAT(end.cause.message(), HasSubstr("b reported the success of 1 of its 2 ranks"));
  // A tolerated loss is accounted for, but does not count as a success.
  EXPECT_EQ(decide({.attempt = 1, .count = 2, .succeeded = 1, .tolerated = 1}, 3).exit_code, 0);
  EXPECT_EQ(decide({.attempt = 1, .count = 1, .tolerated = 1}, 2).exit_code, 0);
  EXPECT_EQ(decide({.attempt = 1, .count = 2, .tolerated = 1}, 3).exit_code, 70);
  EXPECT_EQ(decide({.attempt = 2, .count = 1, .tolerated = 1}, 2).exit_code, 70);
  JobInfo none = Info({Closed("a", {}, {0})}, {0});
  none.nodes[0].ranks = {.attempt = 1, .count = 1, .tolerated = 1};
  EXPECT_EQ(DecideJobEnd(none).exit_code, 70);
}

// A node that does not host the rendezvous reports the success of a job that consists only of this
// node.
TEST(OutcomeTest, IgnoresFinalStatusOfOtherNodes) {
  pb::Cause failed = Exit7();
  failed.set_node_index(0);
  JobInfo info = Info({Closed("liar", {}, {0}), Closed("host", failed, {0, 1})}, {0, 1});
  info.rendezvous_node = 1;
  EXPECT_EQ(DecideJobEnd(info).exit_code, 7);
}

TEST(OutcomeTest, NodeThatBrokeTheRulesIsCause) {
  JobInfo info = Info({Closed("a", {}, {0, 1}), Closed("b", {}, {0, 1})}, {0, 1});
  info.broke_rules =
      MakeCause(pb::Cause::NODE_LOST, 1, ExitCode::kUnavailable, "b was lost: its agent sent x");
  const JobEnd end = DecideJobEnd(info);
  EXPECT_EQ(end.exit_code, 69);
  EXPECT_EQ(end.cause.message(), "b was lost: its agent sent x");
}

}  // namespace
}  // namespace dslaunch::outcome_test
