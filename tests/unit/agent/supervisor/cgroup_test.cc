#include "agent/supervisor/cgroup.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <algorithm>
#include <csignal>
#include <filesystem>

#include "base/os/subprocess.h"
#include "tests/support/processes.h"

namespace dslaunch::cgroup_test {
namespace {

using Ms = milliseconds;

TEST(ParseOomKills, ReadsOnlyTheLineOfKills) {
  EXPECT_EQ(ParseOomKills("low 0\nhigh 1\nmax 9\noom 8\noom_kill 3\noom_group_kill 2\n"), 3u);
  EXPECT_EQ(ParseOomKills("low 0\noom 8\n"), 0u);
  EXPECT_EQ(ParseOomKills(""), 0u);
}

TEST(CountOomKills, CountsInTheCgroupOrElseInItsParent) {
  const TempDir own;
  std::filesystem::create_directory(own / "workers");
  EXPECT_FALSE(CountOomKills(own / "workers"));
  own.Write("memory.events", "oom_kill 5\n");
  EXPECT_EQ(CountOomKills(own / "workers"), 5u);
  own.Write("workers/memory.events", "oom_kill 2\n");
  EXPECT_EQ(CountOomKills(own / "workers"), 2u);
}

TEST(Cgroup, MissingCgroupIsEmpty) {
  const TempDir dir;
  EXPECT_TRUE(CgroupProcesses(dir / "missing").empty());
  KillCgroup(dir / "missing");
  EXPECT_TRUE(RemoveCgroup(dir / "missing"));
}

TEST(Cgroup, RejectsJobIdsThatLeaveTheFolder) {
  EXPECT_FALSE(CreateWorkerCgroup("../../job"));
  EXPECT_FALSE(CreateWorkerCgroup(""));
}

// Creates a real cgroup. Skips the test if this machine or user cannot.
class RealCgroup : public testing::Test {
 protected:
  void SetUp() override {
    const Result<std::string> made = CreateWorkerCgroup(NewJobId());
    if (!made) GTEST_SKIP() << made.error().message;
    folder_ = *made;
    fd_.Reset(open(folder_.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  }
  void TearDown() override {
    if (folder_.empty()) return;
    EXPECT_TRUE(WaitFor(Ms(5000), [this] {
      KillCgroup(folder_);
      while (waitpid(-1, nullptr, WNOHANG) > 0) {
      }
      return RemoveCgroup(folder_);
    }));
  }

  pid_t Start(const std::string& script) {
    const SpawnResult result = Spawn({.executable = "/bin/sh",
                                      .argv = {"sh", "-c", script},
                                      .cwd = dir_.path(),
                                      .cgroup_fd = fd_.get()});
    EXPECT_GT(result.pid, 0);
    return result.pid;
  }

  bool Holds(pid_t pid) const {
    return std::ranges::any_of(CgroupProcesses(folder_),
                               [pid](const ProcessInfo& info) { return info.id.pid == pid; });
  }

  TempDir dir_;
  std::string folder_;
  UniqueFd fd_;
};

TEST_F(RealCgroup, HoldsProcessWithoutItsSessionAndParent) {
  const pid_t worker =
      Start("setsid env -i sh -c 'echo $$ > wild.new; mv wild.new wild; exec sleep 600' &");
  EXPECT_EQ(waitpid(worker, nullptr, 0), worker);
  const pid_t wild = AwaitPidFile(dir_ / "wild");
  ASSERT_GT(wild, 0);
  EXPECT_EQ(getsid(wild), wild);
  EXPECT_TRUE(Holds(wild));
  EXPECT_FALSE(RemoveCgroup(folder_)) << "something lives in it";
  KillCgroup(folder_);
  EXPECT_TRUE(WaitFor(Ms(5000), [&] { return IsGone(wild); }));
  EXPECT_TRUE(CgroupProcesses(folder_).empty());
  EXPECT_TRUE(RemoveCgroup(folder_));
  EXPECT_FALSE(std::filesystem::exists(folder_));
}

TEST_F(RealCgroup, HoldsProcessInACgroupBelow) {
  const std::string below = folder_ + "/below";
  ASSERT_EQ(mkdir(below.c_str(), 0700), 0);
  const pid_t worker = Start("echo $$ > " + below + "/cgroup.procs; exec sleep 600");
  ASSERT_TRUE(WaitFor(Ms(5000), [&] { return !ReadFile(below + "/cgroup.procs").empty(); }));
  EXPECT_TRUE(Holds(worker));
  KillCgroup(folder_);
  EXPECT_EQ(waitpid(worker, nullptr, 0), worker);
  EXPECT_TRUE(RemoveCgroup(folder_));
}

TEST_F(RealCgroup, OmitsZombies) {
  const pid_t worker = Start("exec true");
  ASSERT_TRUE(WaitFor(Ms(5000), [worker] { return StateOf(worker) == 'Z'; }));
  EXPECT_FALSE(Holds(worker));
  EXPECT_TRUE(RemoveCgroup(folder_));
  EXPECT_EQ(waitpid(worker, nullptr, 0), worker);
}

}  // namespace
}  // namespace dslaunch::cgroup_test
