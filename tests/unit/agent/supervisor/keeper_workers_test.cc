#include "agent/supervisor/keeper_workers.h"

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <csignal>
#include <filesystem>
#include <vector>

#include "tests/unit/agent/supervisor/processes.h"

namespace dslaunch {
namespace {

using Ms = milliseconds;

// Workers that sleep, below this test itself, in a "cgroup" whose files the test writes: the kernel
// starts nothing in a plain folder, so they run in the test's own.
class KeeperWorkersTest : public testing::Test {
 protected:
  KeeperWorkersTest()
      : workers_(io_, {}, [this](const pb::KeeperEvent& event) { events_.push_back(event); }) {
    std::filesystem::create_directory(dir_ / "cgroup");
    CountOomKill(3);  // what came before is no news
    workers_.StartIn(dir_ / "cgroup");
  }

  void CountOomKill(int total) const {
    dir_.Write("cgroup/memory.events", "oom 9\noom_kill " + std::to_string(total) + "\n");
  }

  pid_t Start(uint32_t rank) {
    pb::SpawnWorkers request;
    request.set_cwd(dir_.path());
    pb::WorkerSpec& spec = *request.add_workers();
    spec.set_local_rank(rank);
    for (const char* arg : {DSLAUNCH_FAKE_WORKER, "--sleep-ms", "60000"}) spec.add_argv(arg);
    spec.set_stdout_path(dir_ / "out");
    spec.set_stderr_path(dir_ / "err");
    workers_.Spawn(request);
    return events_.back().spawned().pid();
  }

  // How the worker ended, as the keeper tells it.
  pb::WorkerExited End(pid_t pid, int signal) {
    kill(pid, signal);
    siginfo_t child = {};
    EXPECT_EQ(waitid(P_PID, static_cast<id_t>(pid), &child, WEXITED), 0);
    workers_.OnChild(child);
    return events_.back().exited();
  }

  TempDir dir_;
  asio::io_context io_;
  std::vector<pb::KeeperEvent> events_;
  KeeperWorkers workers_;
};

TEST_F(KeeperWorkersTest, AKillThatTheCgroupCountedWasForWantOfMemory) {
  const pid_t first = Start(0), second = Start(1), third = Start(2);
  EXPECT_FALSE(End(first, SIGKILL).out_of_memory()) << "counted before it was started";
  CountOomKill(4);
  const pb::WorkerExited killed = End(second, SIGKILL);
  EXPECT_EQ(killed.signal(), SIGKILL);
  EXPECT_TRUE(killed.out_of_memory());
  EXPECT_FALSE(End(third, SIGKILL).out_of_memory()) << "the count did not grow again";
}

TEST_F(KeeperWorkersTest, OtherEndsAreNeverForWantOfMemory) {
  const pid_t worker = Start(0);
  CountOomKill(4);  // a child of the worker, perhaps
  EXPECT_FALSE(End(worker, SIGTERM).out_of_memory());
}

TEST_F(KeeperWorkersTest, WithoutACountNothingWasForWantOfMemory) {
  const pid_t worker = Start(0);
  std::filesystem::remove(dir_ / "cgroup/memory.events");
  EXPECT_FALSE(End(worker, SIGKILL).out_of_memory());
}

}  // namespace
}  // namespace dslaunch
