#include "agent/supervisor/supervisor_workers.h"

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <csignal>
#include <filesystem>
#include <map>
#include <optional>

#include "tests/support/processes.h"

namespace dslaunch::supervisor_workers_test {
namespace {

using Ms = milliseconds;

// Workers that sleep, below this test itself, in a "cgroup" whose files the test writes: the kernel
// starts nothing in a plain folder, so they run in the test's own.
class SupervisorWorkersTest : public testing::Test {
 protected:
  SupervisorWorkersTest() : workers_(io_, {}, [](const pb::SupervisorEvent&) {}) {
    std::filesystem::create_directory(dir_ / "cgroup");
    CountOomKill(3);  // what came before is no news
    workers_.StartIn(dir_ / "cgroup");
  }

  void CountOomKill(int total) const {
    dir_.Write("cgroup/memory.events", "oom 9\noom_kill " + std::to_string(total) + "\n");
  }

  pid_t Start(uint32_t rank) {
    pb::WorkerSpec spec;
    spec.set_local_rank(rank);
    for (const char* arg : {DSLAUNCH_FAKE_WORKER, "--sleep-ms", "60000"}) spec.add_argv(arg);
    spec.set_stdout_path(dir_ / "out");
    spec.set_stderr_path(dir_ / "err");
    const SpawnResult result = workers_.Start(spec, dir_.path());
    EXPECT_GT(result.pid, 0) << result.failure.step;
    ranks_[result.pid] = rank;
    return result.pid;
  }

  // How the worker ended, as SupervisorCore is told.
  WorkerChange End(pid_t pid, int signal) {
    kill(pid, signal);
    siginfo_t child = {};
    EXPECT_EQ(waitid(P_PID, static_cast<id_t>(pid), &child, WEXITED), 0);
    const std::optional<SupervisorWorkers::Change> change = workers_.OnChild(child);
    EXPECT_TRUE(change);
    if (!change) return {};
    EXPECT_EQ(change->local_rank, ranks_[pid]);
    EXPECT_EQ(change->change.event,
              signal == SIGKILL ? WorkerEvent::kKilled : WorkerEvent::kExited);
    EXPECT_FALSE(workers_.OnChild(child)) << "it ended once";
    return change->change;
  }

  TempDir dir_;
  asio::io_context io_;
  std::map<pid_t, uint32_t> ranks_;
  SupervisorWorkers workers_;
};

TEST_F(SupervisorWorkersTest, AKillThatTheCgroupCountedWasForWantOfMemory) {
  const pid_t first = Start(0), second = Start(1), third = Start(2);
  EXPECT_FALSE(End(first, SIGKILL).out_of_memory) << "counted before it was started";
  CountOomKill(4);
  const WorkerChange killed = End(second, SIGKILL);
  EXPECT_EQ(killed.signal, SIGKILL);
  EXPECT_TRUE(killed.out_of_memory);
  EXPECT_FALSE(End(third, SIGKILL).out_of_memory) << "the count did not grow again";
}

TEST_F(SupervisorWorkersTest, OtherEndsAreNeverForWantOfMemory) {
  const pid_t worker = Start(0);
  CountOomKill(4);  // a child of the worker, perhaps
  EXPECT_FALSE(End(worker, SIGTERM).out_of_memory);
}

TEST_F(SupervisorWorkersTest, WithoutACountNothingWasForWantOfMemory) {
  const pid_t worker = Start(0);
  std::filesystem::remove(dir_ / "cgroup/memory.events");
  EXPECT_FALSE(End(worker, SIGKILL).out_of_memory);
}

}  // namespace
}  // namespace dslaunch::supervisor_workers_test
