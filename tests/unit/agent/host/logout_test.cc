#include "agent/host/logout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "tests/support/temp_dir.h"

namespace dslaunch::logout_test {
namespace {

using ::testing::HasSubstr;

TEST(LogoutTest, ReadsKillUserProcessesFromLoginSection) {
  EXPECT_FALSE(ParseKillUserProcesses({}));
  EXPECT_FALSE(ParseKillUserProcesses({"[Login]\n#KillUserProcesses=yes\n"}));
  EXPECT_TRUE(ParseKillUserProcesses({"[Login]\n KillUserProcesses = Yes \n"}));
  EXPECT_FALSE(ParseKillUserProcesses({"[Other]\nKillUserProcesses=yes\n"}));
  EXPECT_FALSE(ParseKillUserProcesses(
      {"[Login]\nKillUserProcesses=yes\n", "[Login]\nKillUserProcesses=no\n"}))
      << "the last word counts";
}

TEST(LogoutTest, ReadsSessionOrManagerFromCgroup) {
  const char kSession[] = "0::/user.slice/user-1000.slice/session-4.scope\n";
  const char kManager[] =
      "0::/user.slice/user-1000.slice/user@1000.service/app.slice/run-1.scope\n";
  EXPECT_TRUE(IsInLoginSession(kSession));
  EXPECT_FALSE(IsInUserManager(kSession));
  EXPECT_FALSE(IsInLoginSession(kManager));
  EXPECT_TRUE(IsInUserManager(kManager));
  EXPECT_FALSE(IsInLoginSession("0::/\n"));
}

TEST(LogoutTest, LeavesSessionOnlyIfLogoutEndsTheJob) {
  EXPECT_TRUE(ShouldLeaveSession({.kills = true, .in_session = true}));
  EXPECT_FALSE(ShouldLeaveSession({.kills = false, .in_session = true}));
  EXPECT_FALSE(ShouldLeaveSession({.kills = true, .in_session = false}));
}

TEST(LogoutTest, WarnsWithNodeAndHintIfLogoutEndsTheJob) {
  EXPECT_EQ(LogoutWarning({.kills = false, .in_session = true}, "node1"), "");
  EXPECT_EQ(LogoutWarning({.kills = true, .in_manager = true, .lingers = true}, "node1"), "");
  EXPECT_EQ(LogoutWarning({.kills = true}, "node1"), "") << "no login has to do with it";
  for (const LogoutInfo& info : {LogoutInfo{.kills = true, .in_session = true},
                                 LogoutInfo{.kills = true, .in_manager = true}}) {
    EXPECT_THAT(LogoutWarning(info, "node1"), HasSubstr("node1: logind"));
    EXPECT_THAT(LogoutWarning(info, "node1"), HasSubstr("loginctl enable-linger"));
  }
}

// Runs LeaveSession in a child process with the script `systemd_run` first in PATH. Returns the
// text that the script wrote to LOG.
std::string RunLeaveSession(const TempDir& dir, const std::string& systemd_run) {
  dir.Write("systemd-run", systemd_run, /*executable=*/true);
  const std::string log = dir / "log";
  const pid_t child = fork();
  if (child == 0) {
    const std::string path = dir.path() + ":" + std::getenv("PATH");
    setenv("PATH", path.c_str(), 1);
    setenv("LOG", log.c_str(), 1);
    char program[] = "dslaunch-agent", first[] = "supervisor", second[] = "two words $(x)";
    char* argv[] = {program, first, second, nullptr};
    LeaveSession(argv);
    _exit(42);
  }
  int status = 0;
  waitpid(child, &status, 0);
  std::ifstream file(log);
  return std::string(std::istreambuf_iterator<char>(file), {}) +
         std::to_string(WEXITSTATUS(status));
}

constexpr char kScope[] = "--user|--scope|--quiet|--collect|--|";

TEST(LogoutTest, ScopeGetsTheSameArguments) {
  const TempDir dir;
  const std::string self = std::filesystem::read_symlink("/proc/self/exe");
  EXPECT_EQ(
      RunLeaveSession(dir, "#!/bin/sh\nprintf '%s|' \"$@\" >> $LOG; echo >> $LOG\n"),
      kScope + std::string("/bin/true|\n") + kScope + self + "|supervisor|two words $(x)|\n0");
}

TEST(LogoutTest, StaysIfScopesFail) {
  const TempDir dir;
  EXPECT_EQ(RunLeaveSession(dir, "#!/bin/sh\necho tried >> $LOG; exit 1\n"), "tried\n42");
}

TEST(LogoutTest, StaysIfScopesDoNotAnswer) {
  const TempDir dir;
  EXPECT_EQ(RunLeaveSession(dir, "#!/bin/sh\nexec sleep 60\n"), "42");
}

}  // namespace
}  // namespace dslaunch::logout_test
