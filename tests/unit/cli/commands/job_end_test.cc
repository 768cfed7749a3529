#include "cli/commands/job_end.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <nlohmann/json.hpp>

#include "cli/session/summary_json.h"

namespace dslaunch::job_end_test {
namespace {

using testing::HasSubstr;
using testing::Not;

JobRecord Record(Launcher launcher = Launcher::kSsh) {
  JobRecord record;
  record.job_id = "20260101-aa";
  record.launcher = launcher;
  record.nodes = {{"node0", "node0", 0, ""}, {"node1", "node1", 0, ""}};
  record.argv = {"dslaunch", "train"};
  record.started_unix_ms = 1'000'000;
  return record;
}

JobSummary Watched() {
  JobSummary summary;
  summary.job_id = "20260101-aa";
  summary.nodes = {{"node0", "done", true, "/logs/0"}, {"node1", "done", true, "/logs/1"}};
  summary.num_nodes = 2;
  summary.world_size = 4;
  summary.duration_s = 1.5;
  summary.cause.kind = EndCause::Kind::kWorkerExit;
  summary.cause.node = "node1";
  summary.cause.rank = 3;
  summary.cause.local_rank = 1;
  summary.cause.exit_code = 9;
  summary.cause.last_lines = "Traceback\nValueError: x\n";
  summary.cause.log_path = "/logs/1/stderr.log";
  summary.workers = {
      {0, true, 0, SIGTERM, true}, {1, true, 1, 0, false, true}, {2, true, 0, 0}, {3, true, 9, 0}};
  summary.left = {{"node1", 77, "python3", "D", "nfs_wait"}};
  summary.remarks = {"node2 was lost"};
  summary.logs = "node0:/logs/0";
  summary.exit_code = 9;
  return summary;
}

std::string EndLine(const JobSummary& summary) {
  return R"({"t":1.0,"event":"end",)" + SummaryJson(summary).substr(1) + "\n";
}

constexpr char kBefore[] = R"({"t":1.0,"event":"node_connected","node":"node1","job_dir":"/logs/1"}
{"t":1.0,"event":"started","node":"node1","world_size":4}
{"t":1.0,"event":"notice","message":"\"event\":\"end\""}
{"t":1.0,"event":"end","job":
)";

pb::JobResult RestartedResult() {
  pb::JobResult result;
  for (const uint64_t attempt : {1, 2}) {
    pb::AttemptEvent& start = *result.mutable_done()->add_attempts();
    start.set_unix_ms(static_cast<int64_t>(attempt) * 1000);
    start.mutable_started()->set_attempt(attempt);
    start.mutable_started()->set_world_size(6);
    start.mutable_started()->set_restart_count(static_cast<uint32_t>(attempt) - 1);
    if (attempt > 1) continue;
    pb::AttemptEvent& end = *result.mutable_done()->add_attempts();
    end.set_unix_ms(1500);
    end.mutable_restarting()->set_attempt(1);
  }
  return result;
}

TEST(SummarizeResultTest, CountsRestartsOfNodesRecord) {
  const JobSummary summary = SummarizeResult(Record(), RestartedResult(), 0, JobTrace());
  EXPECT_EQ(summary.restarts, 1u);
  EXPECT_EQ(summary.attempts, 2u);
  EXPECT_EQ(summary.world_size, 6);
}

TEST(MissingEventsTest, ReturnsEventsAfterRecordedOnes) {
  const JobTrace trace =
      ReadJobTrace(R"({"t":1.0,"event":"started","node":"node1","attempt":1,"world_size":6})"
                   "\n",
                   Record());
  const std::vector<TimedEvent> missing = MissingEvents(RestartedResult(), trace);
  ASSERT_EQ(missing.size(), 2u);
  EXPECT_EQ(missing[0].unix_ms, 1500);
  EXPECT_EQ(missing[0].event.restarting().attempt(), 1u);
  EXPECT_EQ(missing[1].unix_ms, 2000);
  EXPECT_EQ(missing[1].event.started().attempt(), 2u);
}

TEST(JobTraceTest, RestoresSummaryFromEvents) {
  const JobTrace trace = ReadJobTrace(kBefore + EndLine(Watched()), Record());
  ASSERT_TRUE(trace.end.has_value());
  EXPECT_EQ(SummaryText(*trace.end), SummaryText(Watched()));
  JobSummary interrupted = Watched();
  interrupted.cause = {};
  interrupted.cause.kind = EndCause::Kind::kInterrupted;
  interrupted.cause.signal = SIGINT;
  EXPECT_EQ(SummaryText(*ReadJobTrace(EndLine(interrupted), Record()).end),
            SummaryText(interrupted));
  interrupted.saved_on_request = true;
  interrupted.exit_code = 85;
  EXPECT_THAT(SummaryText(*ReadJobTrace(EndLine(interrupted), Record()).end),
              HasSubstr("stopped on request (SIGINT)"));
  JobSummary good;
  good.num_nodes = 0;
  good.world_size = 0;
  EXPECT_EQ(SummaryText(*ReadJobTrace(EndLine(good), Record()).end), SummaryText(good));
}

TEST(JobTraceTest, OmitsNodeFromLocalPaths) {
  const JobTrace trace = ReadJobTrace(EndLine(Watched()), Record(Launcher::kLocal));
  EXPECT_THAT(SummaryText(*trace.end), HasSubstr("its log: /logs/1/stderr.log\n"));
}

TEST(JobTraceTest, ReturnsNoEndIfNoneIsRecorded) {
  const JobTrace trace = ReadJobTrace(kBefore, Record());
  EXPECT_FALSE(trace.end.has_value());
  EXPECT_EQ(trace.world_size, 4);
  EXPECT_EQ(trace.job_dirs.at("node1"), "/logs/1");
}

TEST(SummarizeResultTest, SummaryOfDetachedJobHasCauseAndLog) {
  pb::JobResult result;
  result.set_exit_code(9);
  result.set_started_unix_ms(1'000'000);
  result.set_ended_unix_ms(1'004'200);
  pb::Cause& cause = *result.mutable_cause();
  cause.set_kind(pb::Cause::WORKER_EXIT);
  cause.set_node_index(1);
  cause.set_rank(3);
  cause.set_local_rank(1);
  cause.set_exit_code(9);
  cause.set_attempt(2);
  cause.set_evidence("ValueError: x");
  result.mutable_done()->add_victims(3);
  result.mutable_done()->add_victims(1);
  const JobTrace trace = ReadJobTrace(kBefore, Record());
  EXPECT_EQ(SummaryText(SummarizeResult(Record(), result, 0, trace)),
            "dslaunch: rank 3 (node1, local rank 1) exited with code 9 after 4.2 s\n"
            "  ValueError: x\n"
            "  its log: node1:/logs/1/attempt_2/rank_3/stderr.log\n"
            "  rank 1 failed because of it\n"
            "  exit code 9\n");
  pb::JobResult good;
  good.set_started_unix_ms(1'000'000);
  good.set_ended_unix_ms(1'002'000);
  EXPECT_EQ(SummaryText(SummarizeResult(Record(), good, 0, trace)),
            "dslaunch: 4 ranks on 2 nodes succeeded in 2.0 s; logs: node1:/logs/1\n");
}

TEST(JobTraceTest, CountsRanksOfEndThatListsNone) {
  pb::JobResult good;
  good.set_started_unix_ms(1'000'000);
  good.set_ended_unix_ms(1'002'000);
  const JobSummary end = SummarizeResult(Record(), good, 0, ReadJobTrace(kBefore, Record()));
  const JobTrace trace = ReadJobTrace(kBefore + EndLine(end), Record());
  ASSERT_TRUE(trace.end);
  EXPECT_EQ(SummaryText(*trace.end),
            "dslaunch: 4 ranks on 2 nodes succeeded in 2.0 s; logs: node1:/logs/1\n");
}

TEST(DescribeJobTest, DescribesJobAndItsEnd) {
  JobView view;
  view.record = Record();
  view.state = JobView::State::kEnded;
  view.exit_code = 9;
  view.ended_unix_ms = 1'004'200;
  const std::string text = DescribeJob(view, Watched(), "/state/20260101-aa", 2'000'000);
  for (const char* line : {"job       20260101-aa\n", "command   dslaunch train\n",
                           "state     ended (9)\n", "nodes     node0, node1\n", "duration  4 s\n",
                           "\n\ndslaunch: rank 3 (node1, local rank 1) exited with code 9"}) {
    EXPECT_THAT(text, HasSubstr(line));
  }
  view.state = JobView::State::kRunning;
  view.step = 3;
  const std::string running = DescribeJob(view, std::nullopt, "/state/20260101-aa", 2'000'000);
  EXPECT_THAT(running, HasSubstr("step      3\n"));
  EXPECT_THAT(running, Not(HasSubstr("ended")));
}

}  // namespace
}  // namespace dslaunch::job_end_test
