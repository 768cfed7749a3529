#include "agent/supervisor/supervisor_workers.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>

#include "base/os/pass_fd.h"
#include "base/os/socket_pair.h"
#include "tests/support/processes.h"

namespace dslaunch::supervisor_workers_test {
namespace {

using Ms = milliseconds;

// Runs workers that sleep, as children of the test, in a "cgroup" whose files the test writes. The
// kernel cannot start processes in a plain folder, so the workers run in the test's own cgroup.
class SupervisorWorkersTest : public testing::Test {
 protected:
  SupervisorWorkersTest() : SupervisorWorkersTest(*MakeSocketPair()) {}
  explicit SupervisorWorkersTest(SocketPair sockets)
      : sockets_(std::move(sockets.ours)),
        workers_(io_, std::move(sockets.theirs),
                 {.on_status = [](const pb::SupervisorEvent&) {},
                  .on_start =
                      [this](uint32_t rank, const SpawnResult& result) {
                        EXPECT_TRUE(started_.emplace(rank, result).second) << "told once";
                      }}) {
    std::filesystem::create_directory(dir_ / "cgroup");
    shared_.set_cwd(dir_.path());
    CountOomKill(3);  // earlier kills must not be reported
    workers_.StartIn(dir_ / "cgroup");
  }

  void CountOomKill(int total) const {
    dir_.Write("cgroup/memory.events", "oom 9\noom_kill " + std::to_string(total) + "\n");
  }

  ~SupervisorWorkersTest() override {
    for (const auto& [pid, rank] : ranks_) kill(pid, SIGKILL);
    while (waitpid(-1, nullptr, 0) > 0) {
    }
  }

  // Begins to start a worker, which blocks until its stdout, a FIFO, is opened for reading. Returns
  // its pid.
  pid_t StartSlowly(uint32_t rank) {
    const std::string fifo = dir_ / ("fifo" + std::to_string(rank));
    EXPECT_EQ(mkfifo(fifo.c_str(), 0600), 0);
    return Start(rank, fifo);
  }
  UniqueFd Read(uint32_t rank) const {
    return UniqueFd(
        open((dir_ / ("fifo" + std::to_string(rank))).c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  }
  bool AwaitStarts(size_t count) {
    return WaitFor(Ms(20'000), [&] {
      io_.restart();
      io_.poll();
      return started_.size() >= count;
    });
  }

  pid_t Start(uint32_t rank) { return Start(rank, dir_ / "out"); }
  pid_t Start(uint32_t rank, const std::string& out) {
    pb::WorkerSpec spec;
    spec.set_local_rank(rank);
    for (const char* arg : {DSLAUNCH_FAKE_WORKER, "--sleep-ms", "60000"}) spec.add_argv(arg);
    spec.set_stdout_path(out);
    spec.set_stderr_path(dir_ / "err");
    const SpawnResult result = workers_.Start(spec, shared_);
    EXPECT_GT(result.pid, 0) << result.failure.step;
    ranks_[result.pid] = rank;
    return result.pid;
  }

  // Ends a worker with `signal` and returns the change that SupervisorCore receives.
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
  const UniqueFd sockets_;  // the agent's end of the socket
  pb::SpawnWorkers shared_;
  std::map<pid_t, uint32_t> ranks_;
  std::map<uint32_t, SpawnResult> started_;
  SupervisorWorkers workers_;
};

TEST_F(SupervisorWorkersTest, WorkerGetsTheLatestSocketFromTheAgent) {
  const auto start = [&](uint32_t rank) {
    pb::WorkerSpec spec;
    spec.set_local_rank(rank);
    for (const char* arg : {"/bin/sh", "-c", "readlink /proc/$$/fd/$DSLAUNCH_STORE_FD"})
      spec.add_argv(arg);
    spec.set_stdout_path(dir_ / "out");
    spec.set_stderr_path(dir_ / "err");
    spec.set_takes_store_fd(true);
    const SpawnResult result = workers_.Start(spec, shared_);
    if (result.pid > 0) ranks_[result.pid] = rank;
    return result;
  };
  EXPECT_EQ(start(0).failure.error_number, EBADF) << "none was passed";
  const UniqueFd stale(open("/dev/null", O_RDONLY | O_CLOEXEC));
  const UniqueFd meant(open("/dev/zero", O_RDONLY | O_CLOEXEC));
  ASSERT_TRUE(SendWithFd(sockets_.get(), "s", stale.get()));
  ASSERT_TRUE(SendWithFd(sockets_.get(), "s", meant.get()));
  const pid_t pid = start(1).pid;
  ASSERT_GT(pid, 0);
  ASSERT_TRUE(AwaitStarts(1));
  int status = 0;
  ASSERT_EQ(waitpid(pid, &status, 0), pid);
  std::ifstream out(dir_ / "out");
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(out), {}), "/dev/zero\n");
  EXPECT_EQ(start(2).failure.error_number, EBADF) << "it was for one worker";
}

TEST_F(SupervisorWorkersTest, RestartedWorkerGetsTheSameMemory) {
  shared_.set_memory_files(true);
  const auto run = [&](uint32_t rank, const std::string& script) {
    pb::WorkerSpec spec;
    spec.set_local_rank(rank);
    for (const std::string& arg :
         {std::string("/bin/sh"), std::string("-c"),
          "A=${DSLAUNCH_MEMORY_FDS%,*} B=${DSLAUNCH_MEMORY_FDS#*,}; " + script})
      spec.add_argv(arg);
    std::filesystem::remove(dir_ / "out");
    spec.set_stdout_path(dir_ / "out");
    spec.set_stderr_path(dir_ / "err");
    started_.clear();
    const pid_t pid = workers_.Start(spec, shared_).pid;
    EXPECT_GT(pid, 0);
    ranks_[pid] = rank;
    EXPECT_TRUE(AwaitStarts(1));
    siginfo_t child = {};
    EXPECT_EQ(waitid(P_PID, static_cast<id_t>(pid), &child, WEXITED), 0);
    workers_.OnChild(child);
    std::ifstream out(dir_ / "out");
    return std::string(std::istreambuf_iterator<char>(out), {});
  };
  EXPECT_EQ(run(0, "printf one >/proc/self/fd/$A; printf two >/proc/self/fd/$B"), "");
  EXPECT_EQ(run(0, "cat /proc/self/fd/$A /proc/self/fd/$B"), "onetwo");
  EXPECT_EQ(run(1, "cat /proc/self/fd/$A /proc/self/fd/$B; stat -L -c %a /proc/self/fd/$A"),
            "600\n");
}

// Starts must not delay each other, because a program on a cold network file system may take
// seconds to start.
TEST_F(SupervisorWorkersTest, SlowStartsDelayNeitherEachOtherNorOthers) {
  ASSERT_GT(StartSlowly(0), 0);
  ASSERT_GT(StartSlowly(1), 0);
  ASSERT_GT(Start(2), 0);
  ASSERT_TRUE(AwaitStarts(1));
  EXPECT_TRUE(started_.contains(2));
  EXPECT_EQ(started_.size(), 1u);
  const UniqueFd first = Read(0), second = Read(1);
  ASSERT_TRUE(AwaitStarts(3));
  for (const auto& [rank, result] : started_) EXPECT_EQ(ranks_[result.pid], rank);
}

TEST_F(SupervisorWorkersTest, ReportsStartAndExitOfWorkerKilledWhileStarting) {
  const pid_t worker = StartSlowly(0);
  End(worker, SIGKILL);
  ASSERT_TRUE(started_.contains(0));
  EXPECT_EQ(started_[0].pid, worker);
}

TEST_F(SupervisorWorkersTest, ReportsFailedStartButNotItsExit) {
  const pid_t worker = Start(0, dir_ / "missing/out");
  siginfo_t child = {};
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(worker), &child, WEXITED), 0);
  EXPECT_FALSE(workers_.OnChild(child));
  ASSERT_TRUE(started_.contains(0));
  EXPECT_EQ(started_[0].failure.error_number, ENOENT);
  EXPECT_STREQ(started_[0].failure.step, "open stdout file");
}

TEST_F(SupervisorWorkersTest, KillCountedByTheCgroupIsOutOfMemory) {
  const pid_t first = Start(0), second = Start(1), third = Start(2);
  EXPECT_FALSE(End(first, SIGKILL).out_of_memory) << "counted before it was started";
  CountOomKill(4);
  const WorkerChange killed = End(second, SIGKILL);
  EXPECT_EQ(killed.signal, SIGKILL);
  EXPECT_TRUE(killed.out_of_memory);
  EXPECT_FALSE(End(third, SIGKILL).out_of_memory) << "the count did not grow again";
}

TEST_F(SupervisorWorkersTest, ReportsKillCountedByTheCgroupForAnyExit) {
  const pid_t worker = Start(0);
  CountOomKill(4);  // the killed process may be a child of the worker
  EXPECT_TRUE(End(worker, SIGTERM).out_of_memory);
}

TEST_F(SupervisorWorkersTest, ReportsNoOutOfMemoryWithoutACount) {
  const pid_t worker = Start(0);
  std::filesystem::remove(dir_ / "cgroup/memory.events");
  EXPECT_FALSE(End(worker, SIGKILL).out_of_memory);
}

// A worker's own arguments are inserted among the shared ones; its own variables override them.
TEST_F(SupervisorWorkersTest, CombinesSharedAndOwnArgumentsAndVariables) {
  for (const char* arg : {DSLAUNCH_FAKE_WORKER, "--print-env", "MINE"}) shared_.add_argv(arg);
  shared_.set_own_argv_at(1);
  shared_.add_env("MINE=everybody's");
  shared_.add_env("ALL=yes");
  pb::WorkerSpec spec;
  for (const char* arg : {"--print-env", "ALL"}) spec.add_argv(arg);
  spec.add_env("MINE=its own");
  spec.set_stdout_path(dir_ / "out");
  spec.set_stderr_path(dir_ / "err");
  const SpawnResult result = workers_.Start(spec, shared_);
  ASSERT_EQ(waitpid(result.pid, nullptr, 0), result.pid);
  EXPECT_EQ(ReadFile(dir_ / "out"), "ALL=yes\nMINE=its own\n");
}

}  // namespace
}  // namespace dslaunch::supervisor_workers_test
