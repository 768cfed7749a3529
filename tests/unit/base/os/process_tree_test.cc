#include "base/os/process_tree.h"

#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <algorithm>
#include <csignal>

#include "base/os/subprocess.h"
#include "proto/contract/worker_env.h"
#include "tests/support/deny_syscalls.h"
#include "tests/support/processes.h"

namespace dslaunch::process_tree_test {
namespace {

constexpr char kFakeWorker[] = DSLAUNCH_FAKE_WORKER;

bool Contains(const std::vector<ProcessInfo>& processes, pid_t pid) {
  return std::ranges::any_of(processes,
                             [pid](const ProcessInfo& info) { return info.id.pid == pid; });
}

void KillAndReap(pid_t pid) {
  kill(pid, SIGKILL);
  EXPECT_EQ(waitpid(pid, nullptr, 0), pid);
}

// Starts a worker with a grandchild in its own session. The test process is a sub-reaper, so it
// adopts the grandchild.
class WithGrandchild : public testing::Test {
 protected:
  void SetUp() override {
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    const SpawnResult result = Spawn({.executable = kFakeWorker,
                                      .argv = {"fake_worker", "--spawn-setsid-grandchild",
                                               "--sleep-ms", "60000", "--pid-file", dir_.path()},
                                      .env = {"RANK=0", "DSLAUNCH_JOB_ID=" + job_id_},
                                      .own_group = true});
    worker_ = result.pid;
    ASSERT_EQ(AwaitPidFile(dir_ / "rank_0.pid"), worker_);
    grandchild_ = AwaitPidFile(dir_ / "grandchild_0.pid");
    ASSERT_GT(grandchild_, 0);
  }
  void TearDown() override {
    for (const pid_t pid : PidsOfJob(job_id_)) kill(pid, SIGKILL);
    while (waitpid(-1, nullptr, 0) > 0) {
    }
    prctl(PR_SET_CHILD_SUBREAPER, 0);
  }

  TempDir dir_;
  const std::string job_id_ = NewJobId();
  pid_t worker_ = 0;
  pid_t grandchild_ = 0;
};

TEST_F(WithGrandchild, DescendantsIncludeOtherSessions) {
  const auto tree = Descendants(getpid(), {});
  EXPECT_TRUE(Contains(tree, worker_));
  EXPECT_TRUE(Contains(tree, grandchild_));
  EXPECT_FALSE(Contains(tree, getpid()));
  const auto grandchild = ReadProcess(grandchild_);
  ASSERT_TRUE(grandchild);
  EXPECT_EQ(grandchild->session, grandchild_);
  EXPECT_EQ(ReadProcess(worker_)->group, worker_);
}

TEST_F(WithGrandchild, OwnChildrenIncludeOrphans) {
  const auto children = OwnChildren();
  EXPECT_NE(std::ranges::find(children, worker_), children.end());
  EXPECT_NE(std::ranges::find(children, grandchild_), children.end());
}

TEST_F(WithGrandchild, MatchesOnlyTheExactJobId) {
  const auto found = ProcessesWithVariable(kJobIdVariable, job_id_);
  EXPECT_TRUE(Contains(found, worker_));
  EXPECT_TRUE(Contains(found, grandchild_));
  EXPECT_EQ(found.size(), 2u);
  EXPECT_TRUE(ProcessesWithVariable(kJobIdVariable, job_id_.substr(0, job_id_.size() - 1)).empty());
  EXPECT_TRUE(ProcessesWithVariable(kJobIdVariable, job_id_ + "0").empty());
}

TEST(ProcessTree, IgnoresJobIdInsideOtherVariables) {
  const std::string job_id = NewJobId();
  const SpawnResult other =
      Spawn({.executable = kFakeWorker,
             .argv = {"fake_worker", "--sleep-ms", "60000"},
             .env = {"X=DSLAUNCH_JOB_ID=" + job_id, "MY_DSLAUNCH_JOB_ID=" + job_id}});
  ASSERT_GT(other.pid, 0);
  EXPECT_TRUE(ProcessesWithVariable(kJobIdVariable, job_id).empty());
  KillAndReap(other.pid);
}

TEST(ProcessTree, DescendantsOmitExceptedBranch) {
  const SpawnResult shell =
      Spawn({.executable = "/bin/sh", .argv = {"sh", "-c", "sleep 60 & wait"}});
  ASSERT_GT(shell.pid, 0);
  ASSERT_TRUE(WaitFor(milliseconds(5000), [] { return Descendants(getpid(), {}).size() == 2; }));
  const pid_t except[] = {shell.pid};
  EXPECT_TRUE(Descendants(getpid(), except).empty());
  for (const ProcessInfo& info : Descendants(getpid(), {})) kill(info.id.pid, SIGKILL);
  EXPECT_EQ(waitpid(shell.pid, nullptr, 0), shell.pid);
}

TEST(ProcessTree, ZombieHasEndedAndIsNotADescendant) {
  const SpawnResult child = Spawn({.executable = "/bin/true", .argv = {"true"}});
  ASSERT_TRUE(WaitFor(milliseconds(5000), [&] { return StateOf(child.pid) == 'Z'; }));
  ASSERT_TRUE(ReadProcess(child.pid));
  EXPECT_TRUE(ReadProcess(child.pid)->ended);
  EXPECT_FALSE(Contains(Descendants(getpid(), {}), child.pid));
  EXPECT_EQ(waitpid(child.pid, nullptr, 0), child.pid);
  EXPECT_FALSE(ReadProcess(child.pid));
}

// A process can choose any name, even a name that looks like the rest of the line.
TEST(ProcessTree, ParsesNameThatLooksLikeFields) {
  const pid_t child = fork();
  if (child == 0) {
    prctl(PR_SET_NAME, ") R 1 1 1 (");
    for (;;) pause();
  }
  ASSERT_TRUE(WaitFor(milliseconds(5000), [child] {
    return ReadFile("/proc/" + std::to_string(child) + "/comm") == ") R 1 1 1 (\n";
  }));
  const auto info = ReadProcess(child);
  ASSERT_TRUE(info);
  EXPECT_EQ(info->parent, getpid());
  EXPECT_EQ(info->group, getpgrp());
  KillAndReap(child);
}

TEST(ProcessTree, SignalsTheNamedProcess) {
  const SpawnResult child =
      Spawn({.executable = kFakeWorker, .argv = {"fake_worker", "--sleep-ms", "60000"}});
  ASSERT_GT(child.pid, 0);
  const auto info = ReadProcess(child.pid);
  ASSERT_TRUE(info);
  EXPECT_GT(info->id.start_ticks, 0u);
  EXPECT_TRUE(SignalProcess(info->id, SIGTERM));
  int status = 0;
  EXPECT_EQ(waitpid(child.pid, &status, 0), child.pid);
  EXPECT_TRUE(WIFSIGNALED(status));
  EXPECT_FALSE(SignalProcess(info->id, SIGTERM)) << "it is gone";
}

// The process must be signalled without a pidfd, because Docker's older seccomp profile refuses
// pidfds with EPERM.
TEST(ProcessTree, SignalsWithoutPidfd) {
  const SpawnResult child =
      Spawn({.executable = kFakeWorker, .argv = {"fake_worker", "--sleep-ms", "60000"}});
  ASSERT_GT(child.pid, 0);
  const auto info = ReadProcess(child.pid);
  ASSERT_TRUE(info);
  const ProcessId other = {child.pid, info->id.start_ticks - 1};
  EXPECT_TRUE(HoldsWithout({SYS_pidfd_open}, EPERM, [&] {
    return !SignalProcess(other, SIGKILL) && SignalProcess(info->id, SIGTERM);
  }));
  int status = 0;
  EXPECT_EQ(waitpid(child.pid, &status, 0), child.pid);
  EXPECT_EQ(WTERMSIG(status), SIGTERM);
}

TEST(ProcessTree, DoesNotSignalProcessWithRecycledPid) {
  const SpawnResult child =
      Spawn({.executable = kFakeWorker, .argv = {"fake_worker", "--sleep-ms", "60000"}});
  ASSERT_GT(child.pid, 0);
  const auto info = ReadProcess(child.pid);
  ASSERT_TRUE(info);
  EXPECT_FALSE(SignalProcess({child.pid, info->id.start_ticks - 1}, SIGKILL));
  EXPECT_EQ(kill(child.pid, 0), 0);
  EXPECT_FALSE(IsGone(child.pid));
  KillAndReap(child.pid);
}

}  // namespace
}  // namespace dslaunch::process_tree_test
