#include "agent/host/shell_environment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <filesystem>

#include "tests/support/temp_dir.h"

namespace dslaunch::shell_environment_test {
namespace {

using ::testing::HasSubstr;

class ShellEnvironmentTest : public ::testing::Test {
 protected:
  Result<SourcedShell> Source(const std::string& text, milliseconds timeout = kVenvTimeout) {
    return SourceScript(dir_.Write("an 'odd' $(name)", text), dir_.path(), environment_, "node2",
                        timeout);
  }
  Error Refusal(const std::string& text, milliseconds timeout = kVenvTimeout) {
    const auto made = Source(text, timeout);
    EXPECT_FALSE(made.ok()) << text;
    return made.ok() ? Error{} : made.error();
  }
  static std::string Value(const SourcedShell& shell, const std::string& name) {
    const char* value = FindVariable(shell.environment, name);
    return value == nullptr ? "(none)" : value;
  }

  TempDir dir_;
  Environment environment_ = {"PATH=/usr/bin:/bin", "HOME=/nowhere", "KEEP=two words", "GONE=1",
                              "PWD=/before",        "SHLVL=7"};
};

TEST_F(ShellEnvironmentTest, ReturnsVariablesThatTheScriptChanged) {
  const auto made = Source(
      "export NEW='$(id)\n\"x\"'\nexport PATH=/venv/bin:$PATH\nunset GONE\nplain=1\necho noise\n");
  ASSERT_TRUE(made.ok()) << made.error().message;
  EXPECT_EQ(Value(*made, "NEW"), "$(id)\n\"x\"");
  EXPECT_EQ(Value(*made, "PATH"), "/venv/bin:/usr/bin:/bin");
  EXPECT_EQ(Value(*made, "KEEP"), "two words");
  EXPECT_EQ(Value(*made, "GONE"), "(none)");
  EXPECT_EQ(Value(*made, "plain"), "(none)");
  // Variables that the shell itself sets keep their previous values.
  EXPECT_EQ(Value(*made, "PWD"), "/before");
  EXPECT_EQ(Value(*made, "SHLVL"), "7");
  EXPECT_EQ(Value(*made, "_"), "(none)");
  EXPECT_EQ(Value(*made, "DSLAUNCH_VENV_SCRIPT"), "(none)");
}

TEST_F(ShellEnvironmentTest, SourcesScriptWithoutArguments) {
  // The script contains the check of virtualenv's activate.
  const auto made = Source("[ \"$BASH_SOURCE\" != \"$0\" ] && export SEEN=\"$#\"\n");
  ASSERT_TRUE(made.ok()) << made.error().message;
  EXPECT_EQ(Value(*made, "SEEN"), "0");
}

TEST_F(ShellEnvironmentTest, SearchesWorkingDirectoryThenHome) {
  std::filesystem::create_directory(dir_ / "home");
  dir_.Write("home/env.sh", "export FROM=home\n");
  environment_.push_back("HOME=" + (dir_ / "home"));
  environment_.erase(environment_.begin() + 1);
  EXPECT_EQ(Value(*SourceScript("env.sh", dir_.path(), environment_, "n"), "FROM"), "home");
  dir_.Write("env.sh", "export FROM=cwd\n");
  EXPECT_EQ(Value(*SourceScript("env.sh", dir_.path(), environment_, "n"), "FROM"), "cwd");
}

TEST_F(ShellEnvironmentTest, ReturnsFolderUmaskAndLimitsOfTheShell) {
  const auto unchanged = Source("export A=1\n");
  ASSERT_TRUE(unchanged.ok()) << unchanged.error().message;
  EXPECT_EQ(unchanged->cwd, dir_.path());
  EXPECT_FALSE(unchanged->limits.has_umask());
  EXPECT_EQ(unchanged->limits.limits_size(), 0);
  std::filesystem::create_directory(dir_ / "data");
  const auto changed = Source("cd data; umask 0037; ulimit -S -n 100; ulimit -c 0\n");
  ASSERT_TRUE(changed.ok()) << changed.error().message;
  EXPECT_EQ(changed->cwd, dir_ / "data");
  EXPECT_EQ(changed->limits.umask(), 0037u);
  const auto& limits = changed->limits.limits();
  const auto files = std::ranges::find(limits, RLIMIT_NOFILE, &pb::ResourceLimit::resource);
  ASSERT_NE(files, limits.end());
  EXPECT_EQ(files->soft(), 100u);
  EXPECT_GT(files->hard(), 100u);
}

TEST_F(ShellEnvironmentTest, KeepsTheNameOfAFolderWithLinks) {
  std::filesystem::create_directory(dir_ / "real");
  std::filesystem::create_directory_symlink(dir_ / "real", dir_ / "link");
  const auto made = SourceScript(dir_.Write("s", "true\n"), dir_ / "link", environment_, "n");
  ASSERT_TRUE(made.ok()) << made.error().message;
  EXPECT_EQ(made->cwd, dir_ / "link");
}

TEST(ChangedLimitsTest, ComparesTablesOfLimits) {
  const std::string head =
      "Limit                     Soft Limit           Hard Limit           Units\n";
  const std::string before =
      head +
      "Max stack size            8388608              unlimited            bytes\n"
      "Max open files            1024                 1048576              files\n";
  EXPECT_EQ(ChangedLimits(before, before).size(), 0);
  EXPECT_EQ(ChangedLimits("", before).size(), 0) << "nothing is known of before";
  const std::string twice = before + "Max open files            7                    9\n";
  EXPECT_EQ(ChangedLimits(twice, twice).size(), 0) << "the first line of a limit counts";
  const auto changed = ChangedLimits(
      before, head +
                  "Max stack size            unlimited            unlimited            bytes\n"
                  "Max open files            1024                 2048                 files\n"
                  "Max locked memory         x                    2048                 bytes\n"
                  "Max unheard of            1                    2\n");
  ASSERT_EQ(changed.size(), 2);
  EXPECT_EQ(changed[0].resource(), static_cast<uint32_t>(RLIMIT_STACK));
  EXPECT_EQ(changed[0].soft(), RLIM_INFINITY);
  EXPECT_EQ(changed[1].resource(), static_cast<uint32_t>(RLIMIT_NOFILE));
  EXPECT_EQ(changed[1].hard(), 2048u);
}

TEST_F(ShellEnvironmentTest, FailuresNameNodeScriptAndLastLine) {
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

TEST_F(ShellEnvironmentTest, LimitsTimeAndSize) {
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

TEST_F(ShellEnvironmentTest, DoesNotWaitForBackgroundProcesses) {
  const auto start = Clock::now();
  ASSERT_TRUE(Source("sleep 5 &\nexport A=1\n").ok());
  EXPECT_LT(Clock::now() - start, milliseconds(4'000));
}

TEST_F(ShellEnvironmentTest, ReportsMissingBash) {
  environment_ = {"PATH=/nonexistent"};
  EXPECT_THAT(Refusal("true\n").message, HasSubstr("needs bash"));
}

}  // namespace
}  // namespace dslaunch::shell_environment_test
