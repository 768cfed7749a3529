#include "cli/session/job_summary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace dslaunch::job_summary_test {
namespace {

TEST(StdinHintTest, NamesStdinOptionIfRankFoundStdinEmpty) {
  EndCause cause;
  cause.kind = EndCause::Kind::kWorkerExit;
  cause.rank = 1;
  cause.last_lines = "Traceback (most recent call last):\nbdb.BdbQuit\n";
  EXPECT_EQ(StdinHint(cause, false),
            "its stdin is empty; give --stdin 0 for rank 0 to read this command's, and call "
            "breakpoint() on rank 0 only");
  EXPECT_EQ(StdinHint(cause, true),
            "its stdin is empty: rank 0 alone reads this command's stdin; call breakpoint() on "
            "rank 0 only");
  cause.last_lines = "EOFError: EOF when reading a line\n";
  EXPECT_NE(StdinHint(cause, false).find("call input() on rank 0 only"), std::string::npos);
  cause.rank = 0;
  EXPECT_EQ(StdinHint(cause, true), "") << "it was the user's own end of file";
  cause.last_lines = "bdb.BdbQuit\nValueError: x\n";
  EXPECT_EQ(StdinHint(cause, false), "");
  cause.last_lines.clear();
  EXPECT_EQ(StdinHint(cause, false), "");
}

TEST(NewestEvaluationTest, KeepsNewestEvaluationOfLowestRank) {
  NewestEvaluation newest;
  const auto report = [&](uint32_t rank, const std::string& line) {
    pb::WorkerStatus status;
    status.set_rank(rank);
    status.set_line(line);
    newest.OnStatus(status);
  };
  report(0, R"({"event":"step","step":4,"loss":3})");
  EXPECT_FALSE(newest.result());
  report(1, R"({"event":"eval","step":4,"loss":9})");
  report(0, R"({"event":"eval","step":4,"loss":2})");
  report(0, R"({"event":"eval","step":8,"loss":1})");
  report(1, R"({"event":"eval","step":8,"loss":9})");
  EXPECT_THAT(newest.result(), testing::Optional(testing::ElementsAre(testing::Pair("step", 8.0),
                                                                      testing::Pair("loss", 1.0))));
}

}  // namespace
}  // namespace dslaunch::job_summary_test
