#include "cli/tune/trial_process.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <thread>

#include "base/deadline.h"
#include "tests/support/own_process.h"

namespace dslaunch::trial_process_test {
namespace {

// Runs a shell script as a job: /bin/sh stands in for dslaunch.
JobRun RunScript(const std::string& script, double limit_s = 30) {
  ProcessJobRunner runner("/bin/sh");
  return runner.Run({"-c", script}, limit_s);
}

TEST(TrialProcessTest, ReturnsOutputAndExitCode) {
  const size_t before = OpenDescriptors();
  const JobRun run = RunScript("echo out; echo err >&2; exit 69");
  EXPECT_EQ(run.out, "out\n");
  EXPECT_EQ(run.err, "err\n");
  EXPECT_EQ(run.exit_code, 69);
  EXPECT_EQ(run.signal, 0);
  EXPECT_FALSE(run.timed_out);
  EXPECT_GT(run.wall_s, 0);
  EXPECT_EQ(OpenDescriptors(), before);
}

TEST(TrialProcessTest, KeepsEndOfMuchOutput) {
  const JobRun run = RunScript("head -c 9000000 /dev/zero; echo; echo last");
  EXPECT_LE(run.out.size(), kMaxJobOutputBytes);
  EXPECT_TRUE(run.out.ends_with("\nlast\n"));
}

TEST(TrialProcessTest, EndsJobAtLimit) {
  const JobRun run =
      RunScript("trap 'echo ended; exit 143' TERM; while :; do sleep 0.02; done", 0.2);
  EXPECT_TRUE(run.timed_out);
  EXPECT_EQ(run.out, "ended\n");
  EXPECT_EQ(run.signal, 0);
  EXPECT_LT(run.wall_s, 20);
}

TEST(TrialProcessTest, SignalOfUserEndsJobAndFollowingOnes) {
  ProcessJobRunner runner("/bin/sh");
  const JobRun run = runner.Run(
      {"-c",
       "trap 'echo interrupted; exit 130' INT; kill -INT $PPID; while :; do sleep 0.02; done"},
      30);
  EXPECT_EQ(run.signal, SIGINT);
  EXPECT_EQ(run.out, "interrupted\n");
  ::kill(::getpid(), SIGTERM);  // interrupts between two jobs
  const JobRun next = runner.Run({"-c", "echo started"}, 30);
  EXPECT_EQ(next.signal, SIGTERM);
  EXPECT_EQ(next.out, "");
}

TEST(TrialProcessTest, ReportsMissingProgram) {
  ProcessJobRunner runner("/nonexistent/dslaunch");
  const JobRun run = runner.Run({}, 5);
  EXPECT_EQ(run.exit_code, 126);
  EXPECT_EQ(run.err, "dslaunch: cannot start dslaunch: No such file or directory\n");
}

}  // namespace
}  // namespace dslaunch::trial_process_test
