#include "cli/output/summary_view.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

#include "base/text/sanitize.h"

namespace dslaunch::summary_view_test {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

RankSummary End(int rank, int exit_code, int signal = 0, bool stopping = false) {
  RankSummary end;
  end.rank = rank;
  end.exit_code = exit_code;
  end.signal = signal;
  end.stopping = stopping;
  return end;
}

JobSummary Failed() {
  JobSummary summary;
  summary.num_nodes = 2;
  summary.world_size = 4;
  summary.duration_s = 1.23;
  summary.cause.kind = EndCause::Kind::kWorkerExit;
  summary.cause.node = "node2";
  summary.cause.rank = 3;
  summary.cause.local_rank = 1;
  summary.cause.exit_code = 7;
  summary.cause.last_lines = "Traceback\nValueError: x\n";
  summary.cause.log_path = "/state/job/stderr.log";
  summary.workers = {End(0, 0, SIGTERM, true), End(1, 0, SIGTERM, true), End(2, 0, SIGTERM, true),
                     End(3, 7)};
  summary.exit_code = 7;
  return summary;
}

TEST(SummaryText, PrintsSuccessOnOneLine) {
  JobSummary summary;
  summary.num_nodes = 2;
  summary.world_size = 4;
  summary.duration_s = 12.34;
  summary.logs = "node1:/state/job";
  EXPECT_EQ(SummaryText(summary),
            "dslaunch: 4 ranks on 2 nodes succeeded in 12.3 s; logs: node1:/state/job\n");
  summary.workers = {End(0, 0), End(3, 0, SIGKILL)};
  EXPECT_EQ(SummaryText(summary),
            "dslaunch: 3 of 4 ranks on 2 nodes succeeded in 12.3 s; logs: node1:/state/job\n");
  summary.num_nodes = summary.world_size = 1;
  summary.workers.clear();
  summary.logs.clear();
  summary.duration_s = 3725;
  EXPECT_EQ(SummaryText(summary), "dslaunch: 1 rank on 1 node succeeded in 1 h 02 min 05 s\n");
}

TEST(SummaryText, DescribesFailedRankAndOtherRanks) {
  EXPECT_EQ(SummaryText(Failed()),
            "dslaunch: rank 3 (node2, local rank 1) exited with code 7 after 1.2 s\n"
            "  its last lines:\n"
            "    Traceback\n"
            "    ValueError: x\n"
            "  its log: node2:/state/job/stderr.log\n"
            "  ranks 0-2 were stopped (SIGTERM)\n"
            "  exit code 7\n");
}

TEST(SummaryText, OmitsEvidenceThatLastLinesContain) {
  JobSummary summary = Failed();
  summary.cause.evidence = "ValueError: x";
  EXPECT_EQ(SummaryText(summary), SummaryText(Failed())) << "the last lines have it";
  summary.cause.last_lines = "Traceback\n";
  EXPECT_THAT(SummaryText(summary), HasSubstr("after 1.2 s\n  ValueError: x\n"));
}

TEST(SummaryText, OmitsTracebackThatWasShown) {
  JobSummary summary = Failed();
  summary.cause.evidence = "ValueError: x";
  summary.cause.was_shown = true;
  EXPECT_THAT(SummaryText(summary), HasSubstr("after 1.2 s\n  ValueError: x\n  its log: "));
  summary.cause.evidence.clear();
  summary.cause.last_lines = "1\n2\n3\n4\n5\n";
  EXPECT_THAT(SummaryText(summary), HasSubstr("its last lines:\n    3\n    4\n    5\n  its log: "));
}

TEST(SummaryText, OmitsNodeFromLocalPaths) {
  JobSummary summary = Failed();
  summary.is_local = true;
  EXPECT_THAT(SummaryText(summary), HasSubstr("\n  its log: /state/job/stderr.log\n"));
}

TEST(SummaryText, NamesSignal) {
  JobSummary summary = Failed();
  summary.cause.kind = EndCause::Kind::kWorkerSignal;
  summary.cause.signal = SIGKILL;
  summary.cause.last_lines.clear();
  summary.exit_code = 137;
  EXPECT_EQ(SummaryText(summary),
            "dslaunch: rank 3 (node2, local rank 1) was killed by SIGKILL after 1.2 s\n"
            "  its log: node2:/state/job/stderr.log\n"
            "  ranks 0-2 were stopped (SIGTERM)\n"
            "  exit code 137\n");
  summary.cause.signal = SIGSEGV;
  summary.cause.core_dumped = true;
  EXPECT_THAT(SummaryText(summary), HasSubstr("was killed by SIGSEGV, core dumped, after 1.2 s\n"));
}

TEST(SummaryText, ReportsOutOfMemoryEvidenceAndVictims) {
  JobSummary summary = Failed();
  summary.cause.kind = EndCause::Kind::kWorkerSignal;
  summary.cause.signal = SIGKILL;
  summary.cause.out_of_memory = true;
  summary.cause.evidence = "the cgroup counted an out-of-memory kill";
  summary.cause.last_lines.clear();
  summary.workers = {End(0, 1), End(1, 1), End(2, 0, SIGTERM, true), End(3, 0, SIGKILL)};
  summary.workers[0].victim = summary.workers[1].victim = true;
  summary.restarts = 2;
  summary.exit_code = 137;
  EXPECT_EQ(SummaryText(summary),
            "dslaunch: rank 3 (node2, local rank 1) was killed by SIGKILL, out of memory, after "
            "1.2 s with 2 restarts\n"
            "  the cgroup counted an out-of-memory kill\n"
            "  its log: node2:/state/job/stderr.log\n"
            "  ranks 0-1 failed because of it\n"
            "  rank 2 was stopped (SIGTERM)\n"
            "  exit code 137\n");
}

TEST(SummaryText, ShowsErrorOfEachVictimWithoutCulprit) {
  JobSummary summary = Failed();
  summary.cause.kind = EndCause::Kind::kWorkerExit;
  summary.cause.exit_code = 1;
  summary.cause.victim = true;
  summary.cause.evidence = "RuntimeError: Connection closed by peer";
  summary.cause.last_lines.clear();
  summary.workers = {End(0, 1), End(1, 0), End(2, 0, SIGTERM, true), End(3, 1)};
  summary.workers[0].victim = true;
  summary.workers[0].evidence = "DistNetworkError: \x1b[2J reset";
  summary.exit_code = 1;
  EXPECT_EQ(SummaryText(summary),
            "dslaunch: rank 3 (node2, local rank 1) exited with code 1 after 1.2 s\n"
            "  RuntimeError: Connection closed by peer\n"
            "  its log: node2:/state/job/stderr.log\n"
            "  its connection to another rank ended, and no rank left an error of its own\n"
            "    rank 0: " +
                SanitizeForTerminal("DistNetworkError: \x1b[2J reset") +
                "\n"
                "  rank 0 exited with code 1; rank 1 succeeded; rank 2 was stopped (SIGTERM)\n"
                "  exit code 1\n");
}

TEST(SummaryText, NamesRanksThatRanWhenAnotherTimedOut) {
  JobSummary summary = Failed();
  summary.cause.kind = EndCause::Kind::kWorkerExit;
  summary.cause.victim = true;
  summary.cause.timed_out = true;
  summary.workers = {End(0, 1), End(1, 0, SIGTERM, true), End(2, 0, SIGTERM, true), End(3, 1)};
  EXPECT_THAT(SummaryText(summary),
              HasSubstr("\n  it timed out waiting for another rank, and no rank left an error of "
                        "its own; ranks 1-2 were still running\n"));
  summary.workers = {End(0, 1), End(1, 1), End(2, 1), End(3, 1)};
  EXPECT_THAT(SummaryText(summary), HasSubstr("; no rank was still running\n"));
}

TEST(SummaryText, KeepsRemarksOnSuccess) {
  JobSummary summary;
  summary.num_nodes = summary.world_size = 1;
  summary.duration_s = 1;
  summary.restarts = 1;
  summary.remarks = {"node2 was lost: cable pulled"};
  EXPECT_EQ(SummaryText(summary),
            "dslaunch: 1 rank on 1 node succeeded in 1.0 s with 1 restart\n"
            "  node2 was lost: cable pulled\n");
}

TEST(SummaryText, GroupsRanksByHowTheyEnded) {
  JobSummary summary = Failed();
  RankSummary lost = End(9, 0);
  lost.reported = false;
  summary.workers = {lost,      End(8, 3, 0, true),       End(3, 7), End(0, 0),         End(1, 0),
                     End(5, 0), End(2, 0, SIGKILL, true), End(6, 1), End(7, 0, SIGSEGV)};
  EXPECT_THAT(
      SummaryText(summary),
      HasSubstr(
          "\n  ranks 0-1, 5 succeeded; rank 2 was stopped (SIGKILL); rank 6 exited with code 1; "
          "rank 7 was killed by SIGSEGV; others ended in other ways\n"));
  summary.workers = {lost, End(8, 3, 0, true), End(3, 7)};
  EXPECT_THAT(
      SummaryText(summary),
      HasSubstr("\n  rank 8 exited with code 3 when stopped; rank 9 did not report an end\n"));
}

TEST(SummaryText, AbbreviatesLongListOfRanks) {
  JobSummary summary = Failed();
  summary.workers.clear();
  for (int rank = 0; rank < 1000; rank += 2) summary.workers.push_back(End(rank, 0));
  EXPECT_THAT(SummaryText(summary),
              HasSubstr("\n  ranks 0, 2, 4, 6, 8, 10, 12, 14 and 492 more succeeded\n"));
}

TEST(SummaryText, ShowsOnlyLastFiftyLines) {
  JobSummary summary = Failed();
  summary.cause.last_lines.clear();
  for (int i = 1; i <= 60; ++i) summary.cause.last_lines += "line " + std::to_string(i) + "\r\n";
  const std::string text = SummaryText(summary);
  EXPECT_THAT(text, HasSubstr("its last lines:\n    line 11\n"));
  EXPECT_THAT(text, HasSubstr("    line 60\n  its log"));
}

TEST(SummaryText, SanitizesRankOutput) {
  JobSummary summary = Failed();
  summary.cause.last_lines =
      "\x1b]0;owned\x07"
      "a\x1b[2J\n";
  EXPECT_THAT(SummaryText(summary), HasSubstr("    a\n"));
  EXPECT_EQ(SummaryText(summary).find('\x1b'), std::string::npos);
}

TEST(SummaryText, BeginsWithMessageOfOtherCauses) {
  JobSummary summary;
  summary.exit_code = 69;
  summary.cause.kind = EndCause::Kind::kNodeLost;
  summary.cause.node = "node2";
  summary.cause.message = "node2 has not answered for 6 s";
  summary.logs = "node1:/state/job";
  summary.left = {{"node2", 4711, "python3", "D", "nfs_wait"}, {"node2", 4712, "", "", ""}};
  summary.remarks = {"node3 was lost: its agent disconnected"};
  EXPECT_EQ(SummaryText(summary),
            "dslaunch: node2 has not answered for 6 s\n"
            "  logs: node1:/state/job\n"
            "  node2: could not end process 4711 (python3, state D, waits in nfs_wait); look at it "
            "there with ps\n"
            "  node2: could not end process 4712; look at it there with ps\n"
            "  node3 was lost: its agent disconnected\n"
            "  exit code 69\n");
  summary.cause.message.clear();
  EXPECT_THAT(SummaryText(summary), StartsWith("dslaunch: the job failed on node2 after 0.0 s\n"));
}

TEST(SummaryText, IndentsFurtherLinesOfMessage) {
  JobSummary summary;
  summary.exit_code = 69;
  summary.cause.kind = EndCause::Kind::kStartFailed;
  summary.cause.message = "node2: cannot start:\nno such\tshell\x1b[1m\n";
  EXPECT_EQ(SummaryText(summary),
            "dslaunch: node2: cannot start:\n  no such\tshell\n  exit code 69\n");
}

TEST(SummaryText, ReportsInterruption) {
  JobSummary summary = Failed();
  summary.cause = {};
  summary.cause.kind = EndCause::Kind::kInterrupted;
  summary.cause.signal = SIGINT;
  summary.workers.back() = End(3, 0, SIGTERM, true);
  summary.exit_code = 130;
  EXPECT_EQ(SummaryText(summary),
            "dslaunch: interrupted by SIGINT after 1.2 s\n"
            "  ranks 0-3 were stopped (SIGTERM)\n"
            "  exit code 130\n");
}

TEST(SummaryText, IncompleteTeardownIsNotSuccess) {
  JobSummary summary;
  summary.exit_code = 70;
  EXPECT_THAT(SummaryText(summary), testing::Not(HasSubstr("succeeded in")));
  EXPECT_THAT(SummaryText(summary), HasSubstr("exit code 70"));
}

}  // namespace
}  // namespace dslaunch::summary_view_test
