#include "agent/host/shell_environment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/support/temp_dir.h"

namespace dslaunch::shell_environment_test {
namespace {

using ::testing::HasSubstr;

class ShellEnvironmentTest : public ::testing::Test {
 protected:
  Result<Environment> Source(const std::string& text, milliseconds timeout = kVenvTimeout) {
    return SourceScript(dir_.Write("an 'odd' $(name)", text), dir_.path(), environment_, "node2",
                        timeout);
  }
  Error Refusal(const std::string& text, milliseconds timeout = kVenvTimeout) {
    const auto made = Source(text, timeout);
    EXPECT_FALSE(made.ok()) << text;
    return made.ok() ? Error{} : made.error();
  }
  static std::string Value(const Environment& environment, const std::string& name) {
    const char* value = FindVariable(environment, name);
    return value == nullptr ? "(none)" : value;
  }

  TempDir dir_;
  Environment environment_ = {"PATH=/usr/bin:/bin", "HOME=/nowhere", "KEEP=two words", "GONE=1",
                              "PWD=/before",        "SHLVL=7"};
};

TEST_F(ShellEnvironmentTest, WhatTheScriptChangesIsTheEnvironment) {
  const auto made = Source(
      "export NEW='$(id)\n\"x\"'\nexport PATH=/venv/bin:$PATH\nunset GONE\nplain=1\necho noise\n");
  ASSERT_TRUE(made.ok()) << made.error().message;
  EXPECT_EQ(Value(*made, "NEW"), "$(id)\n\"x\"");
  EXPECT_EQ(Value(*made, "PATH"), "/venv/bin:/usr/bin:/bin");
  EXPECT_EQ(Value(*made, "KEEP"), "two words");
  EXPECT_EQ(Value(*made, "GONE"), "(none)");
  EXPECT_EQ(Value(*made, "plain"), "(none)");
  // What the shell itself changes is left as it was.
  EXPECT_EQ(Value(*made, "PWD"), "/before");
  EXPECT_EQ(Value(*made, "SHLVL"), "7");
  EXPECT_EQ(Value(*made, "_"), "(none)");
  EXPECT_EQ(Value(*made, "DSLAUNCH_VENV_SCRIPT"), "(none)");
}

TEST_F(ShellEnvironmentTest, TheScriptIsSourcedWithoutArguments) {
  // As virtualenv's activate checks it.
  const auto made = Source("[ \"$BASH_SOURCE\" != \"$0\" ] && export SEEN=\"$#\"\n");
  ASSERT_TRUE(made.ok()) << made.error().message;
  EXPECT_EQ(Value(*made, "SEEN"), "0");
}

TEST_F(ShellEnvironmentTest, ANameIsLookedForInTheWorkingDirectoryThenAtHome) {
  std::filesystem::create_directory(dir_ / "home");
  dir_.Write("home/env.sh", "export FROM=home\n");
  environment_.push_back("HOME=" + (dir_ / "home"));
  environment_.erase(environment_.begin() + 1);
  EXPECT_EQ(Value(*SourceScript("env.sh", dir_.path(), environment_, "n"), "FROM"), "home");
  dir_.Write("env.sh", "export FROM=cwd\n");
  EXPECT_EQ(Value(*SourceScript("env.sh", dir_.path(), environment_, "n"), "FROM"), "cwd");
}

TEST_F(ShellEnvironmentTest, FailuresNameNodeScriptAndWhatItSaid) {
  const Error failed = Refusal("echo one >&2\necho 'no such environment' >&2\nfalse\n");
  EXPECT_EQ(failed.code, ExitCode::kBadInput);
  EXPECT_THAT(failed.message, HasSubstr("node2: --venv_script " + dir_.path()));
  EXPECT_THAT(failed.message, HasSubstr("ended with 1: no such environment"));
  EXPECT_THAT(Refusal("exit 0\n").message, HasSubstr("left the shell before"));
  EXPECT_THAT(Refusal("kill -KILL $$\n").message, HasSubstr("SIGKILL"));
  EXPECT_THAT(Refusal("if then\n").message, HasSubstr("line 1: `if then'"));
  const auto missing = SourceScript("/no/such", dir_.path(), environment_, "node2");
  EXPECT_EQ(missing.error().code, ExitCode::kNotFound);
  EXPECT_THAT(missing.error().message, HasSubstr("node2: --venv_script /no/such: No such file"));
}

TEST_F(ShellEnvironmentTest, TimeAndSizeAreBounded) {
  const auto start = Clock::now();
  const Error slow = Refusal("echo waiting >&2\nsleep 60\n", milliseconds(300));
  EXPECT_EQ(slow.code, ExitCode::kTimedOut);
  EXPECT_THAT(slow.message, HasSubstr("waiting"));
  EXPECT_LT(Clock::now() - start, milliseconds(10'000));
  EXPECT_TRUE(Source("while read -r x; do :; done; yes | head -c 3000000 >&2\n").ok())
      << "stdin is at its end, and stderr may be long";
  EXPECT_THAT(
      Refusal("for i in $(seq 20); do export V$i=$(head -c 60000 /dev/zero | tr '\\0' x); done\n")
          .message,
      HasSubstr("larger than 1 MiB"));
}

TEST_F(ShellEnvironmentTest, WhatItLeavesBehindHoldsNothingUp) {
  const auto start = Clock::now();
  ASSERT_TRUE(Source("sleep 5 &\nexport A=1\n").ok());
  EXPECT_LT(Clock::now() - start, milliseconds(4'000));
}

TEST_F(ShellEnvironmentTest, NoBashIsSaid) {
  environment_ = {"PATH=/nonexistent"};
  EXPECT_THAT(Refusal("true\n").message, HasSubstr("needs bash"));
}

}  // namespace
}  // namespace dslaunch::shell_environment_test
