#include "cli/core/job_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

#include "cli/core/silence.h"
#include "proto/wire/cause.h"
#include "proto/wire/node_set.h"

namespace dslaunch::job_state_test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

LaunchPlan ThreeNodes(int min_nodes) {
  LaunchPlan plan;
  for (const char* name : {"node1", "node2", "node3"}) {
    Host node;
    node.name = name;
    node.slots = 1;
    plan.nodes.push_back(node);
  }
  plan.min_nodes = min_nodes;
  plan.max_nodes = 3;
  plan.ranks = NumberRanksOf(plan.nodes);
  return plan;
}

JobState Elastic() {
  pb::Policy policy;
  policy.set_max_restarts(3);
  return JobState(ThreeNodes(2), policy);
}

pb::NodeEvent Started(uint64_t attempt, const std::vector<uint32_t>& members) {
  pb::NodeEvent event;
  event.mutable_started()->set_attempt(attempt);
  event.mutable_started()->set_world_size(static_cast<uint32_t>(members.size()));
  event.mutable_started()->set_restart_count(static_cast<uint32_t>(attempt - 1));
  *event.mutable_started()->mutable_members() = ToNodeSet(members);
  return event;
}

pb::Cause LostCause(uint32_t node, const std::string& message) {
  return MakeCause(pb::Cause::NODE_LOST, node, ExitCode::kUnavailable, message);
}

pb::NodeEvent Restarting(uint64_t attempt, const pb::Cause& cause, const std::string& reason) {
  pb::NodeEvent event;
  event.mutable_restarting()->set_attempt(attempt);
  *event.mutable_restarting()->mutable_cause() = cause;
  event.mutable_restarting()->set_reason(reason);
  return event;
}

pb::NodeEvent Outcome(uint64_t attempt, const pb::Cause& cause) {
  pb::NodeEvent event;
  event.mutable_outcome()->set_attempt(attempt);
  *event.mutable_outcome()->mutable_cause() = cause;
  return event;
}

pb::NodeEvent ClosedDone() {
  pb::NodeEvent event;
  event.mutable_done()->set_completed(true);
  return event;
}

TEST(JobStateTest, ReportsRestartOnceAndUpdatesMembers) {
  JobState job_state = Elastic();
  for (const size_t node : {0, 1, 2})
    EXPECT_THAT(job_state.OnEvent(node, Started(1, {0, 1, 2})), IsEmpty());
  const pb::NodeEvent restarting =
      Restarting(1, LostCause(2, "node3 was lost: power cut"), "restart 1 of 3 in 1 s");
  EXPECT_THAT(job_state.OnEvent(0, restarting),
              ElementsAre("attempt 1 ended: node3 was lost: power cut; restart 1 of 3 in 1 s"));
  EXPECT_THAT(job_state.OnEvent(1, restarting), IsEmpty());
  EXPECT_TRUE(job_state.given_up().contains(2));
  EXPECT_FALSE(job_state.ending());
  job_state.OnEvent(1, Started(2, {0, 1}));
  EXPECT_EQ(job_state.attempt(), 2u);
  EXPECT_EQ(job_state.restarts(), 1u);
  EXPECT_EQ(job_state.world_size(), 2);
  EXPECT_TRUE(job_state.IsMember(1));
  EXPECT_FALSE(job_state.IsMember(2));
}

TEST(JobStateTest, DescribesEndOfRankInRestartLine) {
  JobState job_state = Elastic();
  pb::Cause cause = MakeCause(pb::Cause::WORKER_SIGNAL, 1, ExitCode::kInternal, "");
  cause.set_rank(4);
  cause.set_signal(SIGKILL);
  cause.set_out_of_memory(true);
  EXPECT_THAT(job_state.OnEvent(0, Restarting(1, cause, "restart 1 of 3")),
              ElementsAre("attempt 1 ended: rank 4 (node2) was killed by SIGKILL, out of memory; "
                          "restart 1 of 3"));
  EXPECT_THAT(job_state.OnEvent(0, Restarting(2, {}, "node3 joined")),
              ElementsAre("attempt 2 ended: node3 joined"));
  cause.set_evidence("killed for 3 GiB");
  cause.set_log_path("/logs/rank_4/stderr.log");
  EXPECT_THAT(job_state.OnEvent(0, Restarting(3, cause, "restart 2 of 3")),
              ElementsAre("attempt 3 ended: rank 4 (node2) was killed by SIGKILL, out of memory; "
                          "restart 2 of 3\n  killed for 3 GiB\n  its log: "
                          "node2:/logs/rank_4/stderr.log"));
}

TEST(JobStateTest, AnyOutcomeEndsJobWithoutRestarts) {
  JobState job_state(ThreeNodes(3), {});
  job_state.OnEvent(2, Outcome(1, LostCause(0, "node1 was lost")));
  EXPECT_TRUE(job_state.ending());
  EXPECT_TRUE(job_state.given_up().contains(0));
}

TEST(JobStateTest, IgnoresOutcomeOfCutOffNode) {
  JobState job_state = Elastic();
  job_state.OnEvent(0, Started(1, {0, 1, 2}));
  job_state.OnEvent(
      2, Outcome(1, LostCause(0, "node1 was lost: the connection to its rendezvous broke")));
  EXPECT_FALSE(job_state.ending());
  job_state.OnEvent(0, Outcome(1, {}));
  EXPECT_TRUE(job_state.ending());
}

TEST(JobStateTest, ElasticJobContinuesWithNewHost) {
  JobState job_state = Elastic();
  job_state.OnEvent(0, Started(1, {0, 1, 2}));
  job_state.OnDisconnected(0);
  EXPECT_FALSE(job_state.ending());
  EXPECT_EQ(job_state.OnFailedOver(1, LostCause(0, "node1 was lost: its agent disconnected"),
                                   /*keeps_last=*/false),
            "attempt 1 ended: node1 was lost: its agent disconnected; node2 hosts the rendezvous "
            "from now on");
  EXPECT_EQ(job_state.restarts(), 1u);
  EXPECT_TRUE(job_state.given_up().contains(0));
  job_state.OnEvent(
      2, Outcome(1, LostCause(1, "node2 was lost: the connection to its rendezvous broke")));
  EXPECT_FALSE(job_state.ending()) << "only a node that was cut off from node2 says so";
  job_state.OnEvent(1, Outcome(2, {}));
  EXPECT_TRUE(job_state.ending());
}

TEST(JobStateTest, IgnoresReconnectedNodeWithoutRendezvous) {
  JobState job_state = Elastic();
  job_state.OnEvent(0, Started(1, {0, 1, 2}));
  job_state.OnDisconnected(2);
  job_state.OnConnected(2);
  job_state.OnDisconnected(0);
  job_state.OnEvent(2, Outcome(0, MakeCause(pb::Cause::TIMED_OUT, 2, ExitCode::kTimedOut,
                                            "node3: cannot reach the rendezvous")));
  EXPECT_FALSE(job_state.ending());
  EXPECT_FALSE(job_state.Info().nodes[2].outcome);
}

TEST(JobStateTest, LostHostEndsJobWithoutRestarts) {
  JobState job_state(ThreeNodes(3), {});
  job_state.SetRendezvous(1);
  job_state.OnDisconnected(0);
  EXPECT_FALSE(job_state.ending());
  job_state.OnDisconnected(1);
  EXPECT_TRUE(job_state.ending());
}

TEST(JobStateTest, FinalStatusOfAnyNodeEndsJob) {
  JobState job_state = Elastic();
  job_state.OnEvent(2, ClosedDone());
  EXPECT_TRUE(job_state.ending());
}

TEST(JobStateTest, LateNodeIsPartOnceItHasRanks) {
  JobState job_state = Elastic();
  job_state.OnAbsent(2);
  EXPECT_FALSE(job_state.IsPart(2));
  job_state.OnConnected(2);
  EXPECT_FALSE(job_state.IsPart(2));
  EXPECT_FALSE(job_state.Info().nodes[2].absent);
  job_state.OnEvent(0, Started(2, {0, 1, 2}));
  EXPECT_TRUE(job_state.IsPart(2));
}

TEST(JobStateTest, KeepsLossOfReconnectedNodeAsRemark) {
  JobState job_state = Elastic();
  job_state.OnDisconnected(2);
  job_state.OnLost(2, "the connection to it broke", "");
  job_state.OnConnected(2);
  const JobInfo info = job_state.Info();
  EXPECT_THAT(info.losses, ElementsAre("node3 was lost: the connection to it broke"));
  EXPECT_TRUE(info.nodes[2].lost_reason.empty());
}

TEST(JobStateTest, InterruptIsCauseUnlessJobEndedBefore) {
  const pb::Cause interrupt =
      MakeCause(pb::Cause::INTERRUPTED, 0, ExitCode::kInterrupted, "interrupted by SIGINT");
  JobState first = Elastic();
  first.OnInterrupted(interrupt);
  EXPECT_TRUE(first.Info().interrupted.has_value());
  JobState late = Elastic();
  late.OnEvent(0, Outcome(1, LostCause(1, "node2 was lost")));
  late.OnInterrupted(interrupt);
  EXPECT_FALSE(late.Info().interrupted.has_value());
}

TEST(SilenceWatchTest, CountsSilenceOnlyWhileListening) {
  const Clock::time_point start{};
  const auto at = [&](int s) { return start + std::chrono::seconds(s); };
  SilenceWatch watch;
  EXPECT_EQ(watch.SilentFor(at(100)), Clock::duration::zero());
  watch.Listen(at(0));
  EXPECT_EQ(watch.SilentFor(at(5)), std::chrono::seconds(5));
  watch.Hold();  // the terminal does not accept the node's output
  EXPECT_EQ(watch.SilentFor(at(60)), Clock::duration::zero());
  watch.ResetDeadline(at(60));
  EXPECT_EQ(watch.SilentFor(at(61)), Clock::duration::zero());
  watch.Listen(at(61));
  watch.ResetDeadline(at(90));  // after a stall of this process
  EXPECT_EQ(watch.SilentFor(at(92)), std::chrono::seconds(2));
}

TEST(SilenceWatchTest, SinceLastSeenCountsWhileNotListening) {
  const Clock::time_point start{};
  SilenceWatch watch;
  watch.Listen(start + std::chrono::seconds(10));
  watch.Hold();
  EXPECT_EQ(watch.SinceLastSeen(start + std::chrono::seconds(70)), std::chrono::seconds(60));
}

}  // namespace
}  // namespace dslaunch::job_state_test
