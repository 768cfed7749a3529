#include "base/os/brief_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

#include "base/os/subprocess.h"
#include "tests/support/temp_dir.h"

namespace dslaunch::brief_run_test {
namespace {

using End = BriefRun::End;

BriefRun Shell(const std::string& script, milliseconds patience = milliseconds(10'000)) {
  return RunBriefly({"/bin/sh", "-c", script}, CurrentEnvironment(), Deadline::After(patience));
}

TEST(BriefRunTest, ReturnsExitCodeAndBothOutputs) {
  const BriefRun run = Shell("echo out; echo err >&2; exit 7");
  EXPECT_EQ(run.end, End::kExited);
  EXPECT_EQ(run.number, 7);
  EXPECT_EQ(run.output, "out\nerr\n");
}

TEST(BriefRunTest, ProgramGainsNoPrivileges) {
  EXPECT_EQ(Shell("grep NoNewPrivs /proc/self/status").output, "NoNewPrivs:\t1\n");
}

TEST(BriefRunTest, ReportsSignalOfKilledProgram) {
  const BriefRun run = Shell("kill -SEGV $$");
  EXPECT_EQ(run.end, End::kSignalled);
  EXPECT_EQ(run.number, SIGSEGV);
}

TEST(BriefRunTest, ReportsErrnoWhenProgramCannotStart) {
  const TempDir dir;
  EXPECT_EQ(RunBriefly({dir / "missing"}, CurrentEnvironment(), Deadline::After(milliseconds(1000)))
                .number,
            ENOENT);
  const std::string text = dir.Write("text", "no program", true);
  const BriefRun run =
      RunBriefly({text}, CurrentEnvironment(), Deadline::After(milliseconds(1000)));
  EXPECT_EQ(run.end, End::kNotStarted);
  EXPECT_EQ(run.number, ENOEXEC);
}

TEST(BriefRunTest, KillsProgramAndChildrenOnTimeout) {
  const TempDir dir;
  const auto before = Clock::now();
  const BriefRun run =
      Shell("echo begun; (sleep 2; touch " + (dir / "late") + ") & sleep 60", milliseconds(500));
  EXPECT_EQ(run.end, End::kTimedOut);
  EXPECT_EQ(run.output, "begun\n");
  EXPECT_LT(Clock::now() - before, milliseconds(1900));
}

TEST(BriefRunTest, ReturnsWhileChildKeepsOutputOpen) {
  const auto before = Clock::now();
  EXPECT_EQ(Shell("sleep 60 & echo done").output, "done\n");
  EXPECT_LT(Clock::now() - before, milliseconds(5000));
}

TEST(BriefRunTest, DiscardsOutputBeyondItsLimit) {
  const BriefRun run = Shell("head -c 1000000 /dev/zero; exit 3");
  EXPECT_EQ(run.number, 3);
  EXPECT_EQ(run.output.size(), 4096u);
}

}  // namespace
}  // namespace dslaunch::brief_run_test
