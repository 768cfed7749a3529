#include "cli/transport/child_process.h"

#include <gmock/gmock.h>

namespace dslaunch {
namespace {

using testing::AllOf;
using testing::HasSubstr;

Deadline Soon() { return Deadline::After(milliseconds(10'000)); }

TEST(FindProgramTest, AsAShellFindsIt) {
  EXPECT_EQ(FindProgram("/bin/sh"), "/bin/sh");
  EXPECT_EQ(FindProgram("sh").substr(FindProgram("sh").size() - 3), "/sh");
  EXPECT_EQ(FindProgram("no-such-program"), "");
  EXPECT_EQ(FindProgram("/etc/passwd"), "");
  EXPECT_EQ(FindProgram("/etc"), "");
  EXPECT_EQ(FindProgram(""), "");
}

TEST(RunForOutputTest, GivesWhatItPrints) {
  const Result<std::string> output = RunForOutput({"/bin/sh", "-c", "cat; printf 'a\\nb'"}, Soon());
  ASSERT_TRUE(output.ok()) << output.error().message;
  EXPECT_EQ(*output, "a\nb");
  EXPECT_EQ(RunForOutput({"/usr/bin/head", "-c", "3000", "/dev/zero"}, Soon(), 1000)->size(),
            1000u);
}

TEST(RunForOutputTest, AFailureIsQuoted) {
  const Result<std::string> output =
      RunForOutput({"/bin/sh", "-c", "echo why >&2; exit 3"}, Soon());
  ASSERT_FALSE(output.ok());
  EXPECT_THAT(output.error().message, AllOf(HasSubstr("exit status 3"), HasSubstr("why")));
  EXPECT_THAT(RunForOutput({"/nonexistent"}, Soon()).error().message, HasSubstr("No such file"));
  EXPECT_THAT(RunForOutput({"/bin/sh", "-c", "kill -9 $$"}, Soon()).error().message,
              HasSubstr("SIGKILL"));
}

TEST(RunForOutputTest, WhatDoesNotEndIsEnded) {
  const auto start = Clock::now();
  const Result<std::string> output =
      RunForOutput({"/bin/sleep", "100"}, Deadline::After(milliseconds(200)));
  EXPECT_LT(Clock::now() - start, milliseconds(5000));
  EXPECT_EQ(output.error().code, ExitCode::kTimedOut);
}

}  // namespace
}  // namespace dslaunch
