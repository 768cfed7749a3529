// Tests the decisions about a node's workers, without processes or a clock.
#include "agent/supervisor/supervisor_workers_core.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "tests/unit/agent/supervisor/action_text.h"

namespace dslaunch::supervisor_workers_core_test {
namespace {

using std::chrono::seconds;
using Ms = milliseconds;

// Carries out the core's actions on processes that are only numbers, and records them as text.
// Counts the remaining processes as SupervisorCore does.
class SupervisorWorkersCoreTest : public testing::Test {
 protected:
  // --- events ---

  void Configure(Ms grace = seconds(10), Ms teardown = seconds(5)) {
    pb::Configure configure;
    configure.set_job_id("job");
    configure.set_grace_ms(static_cast<uint32_t>(grace.count()));
    configure.set_teardown_ms(static_cast<uint32_t>(teardown.count()));
    core_.Configure(configure);
  }
  void Spawn(const std::vector<uint32_t>& local_ranks, bool is_refused = false) {
    pb::SpawnWorkers spawn;
    spawn.set_cwd("/home");
    for (const uint32_t rank : local_ranks) spawn.add_workers()->set_local_rank(rank);
    Do(core_.OnSpawn(std::move(spawn), is_refused));
  }
  void Stop(bool kill_now = false, int signal = 0) {
    pb::StopWorkers stop;
    stop.set_kill_now(kill_now);
    stop.set_signal(signal);
    core_.OnStop(stop);
    Count();
  }
  // Ends and reaps a worker.
  void Exit(uint32_t rank, const WorkerChange& change) {
    --left_;
    Do(core_.OnChange(rank, change));
    Count();
  }
  void Count() {
    if (core_.stopping()) Do(core_.OnLeft({.ranks = left_, .apart = apart_}, now_));
  }
  // Advances the clock. Due timeouts happen at their time.
  void Pass(Ms time) {
    const Clock::time_point end = now_ + time;
    while (core_.wake() && *core_.wake() <= end) {
      now_ = std::max(now_, *core_.wake());
      EXPECT_TRUE(core_.Expires(now_));
      Count();
    }
    EXPECT_FALSE(core_.Expires(end));
    now_ = end;
  }

  // --- actions ---

  void Do(SupervisorActions actions) {
    for (SupervisorAction& action : actions) {
      EXPECT_STRNE(action.reason, "");
      AddText(action, done_);
      std::visit([this](auto& what) { Answer(what); }, action.what);
    }
  }
  template <class Other>
  void Answer(const Other&) {}
  void Answer(const supervisor_action::MakeCgroup& make) {
    EXPECT_EQ(make.job_id, "job");
    Do(core_.OnCgroup(cgroup_));
  }
  void Answer(const supervisor_action::StartWorker& start) {
    EXPECT_EQ(start.shared->cwd(), "/home");
    const uint32_t rank = start.spec.local_rank();
    if (rank == fails_) return Do(core_.OnStartFailed(rank, {ENOENT, "execve"}));
    ++left_;
    ++last_pid_;
    if (starts_slowly_) return done_.push_back("starting " + std::to_string(rank));
    Do(core_.OnStarted(rank, last_pid_));
  }
  void Answer(const supervisor_action::ListLeft&) {
    if (ends_while_listed_) left_ = 0;
    Do(core_.OnLeftListed(LeftProcessesOf(left_)));
  }

  // Returns the actions since the last call.
  std::vector<std::string> Done() { return std::exchange(done_, {}); }
  using Words = std::vector<std::string>;

  SupervisorWorkersCore core_;
  Clock::time_point now_{seconds(1'000)};
  Result<std::string> cgroup_ = std::string("/cgroup");
  size_t left_ = 0;   // number of processes in the ranks' session
  size_t apart_ = 0;  // number of processes in other sessions
  bool ends_while_listed_ = false;
  uint32_t fails_ = 999;
  bool starts_slowly_ = false;  // the test decides when a worker has started
  pid_t last_pid_ = 100;
  std::vector<std::string> done_;
};

// --- starts and changes ---

TEST_F(SupervisorWorkersCoreTest, FirstStartCreatesCgroupAndWatchdog) {
  Configure();
  EXPECT_EQ(Done(), Words());
  Spawn({0, 1});
  EXPECT_EQ(Done(),
            Words({"cgroup /cgroup", "watchdog of job", "spawned 0 as 101", "spawned 1 as 102"}));
  Spawn({2});
  EXPECT_EQ(Done(), Words({"spawned 2 as 103"}));
  EXPECT_FALSE(core_.stopping());
}

TEST_F(SupervisorWorkersCoreTest, StartsDoNotWaitForEachOther) {
  Configure();
  starts_slowly_ = true;
  Spawn({0, 1});
  EXPECT_EQ(Done(), Words({"cgroup /cgroup", "watchdog of job", "starting 0", "starting 1"}));
  Do(core_.OnStarted(1, 102));
  Do(core_.OnStartFailed(0, {ENOENT, "execve"}));
  EXPECT_EQ(Done(), Words({"spawned 1 as 102", "spawn failed 0: 2, execve"}));
}

TEST_F(SupervisorWorkersCoreTest, StopEndsWorkerThatIsStillStarting) {
  Configure();
  starts_slowly_ = true;
  Spawn({0});
  Done();
  Stop();
  EXPECT_EQ(Done(), Words({"TERM"}));
  Do(core_.OnStarted(0, 101));
  Exit(0, {.signal = SIGTERM});
  EXPECT_EQ(Done(), Words({"spawned 0 as 101", "exited 0: signal 15, stopping", "forget",
                           "all reaped, left 0"}));
}

TEST_F(SupervisorWorkersCoreTest, NextStartRetriesToCreateTheCgroup) {
  Configure();
  cgroup_ = Error{ExitCode::kUnavailable, "no cgroup v2"};
  Spawn({0});
  EXPECT_EQ(Done(), Words({"cgroup no cgroup v2", "watchdog of job", "spawned 0 as 101"}));
  Spawn({1});
  EXPECT_EQ(Done(), Words({"cgroup no cgroup v2", "spawned 1 as 102"}));
}

TEST_F(SupervisorWorkersCoreTest, ReportsFailedStartWhichMayBeRetried) {
  Configure();
  fails_ = 1;
  Spawn({0, 1});
  EXPECT_EQ(Done().back(), "spawn failed 1: 2, execve");
  fails_ = 999;
  Spawn({1, 0});
  EXPECT_EQ(Done(), Words({"spawned 1 as 102",
                           "spawn failed 0: 17, start a local rank that runs already"}));
}

TEST_F(SupervisorWorkersCoreTest, ReportsExitStopAndContinueOfWorkers) {
  Configure();
  Spawn({0, 1, 2});
  Done();
  Exit(0, {.event = WorkerEvent::kExited, .exit_code = 7});
  Exit(1, {.event = WorkerEvent::kKilled, .signal = SIGKILL, .out_of_memory = true});
  EXPECT_EQ(Done(), Words({"exited 0: 7", "exited 1: signal 9, out of memory"}));
  Do(core_.OnChange(2, {.event = WorkerEvent::kStopped, .signal = SIGSTOP}));
  Do(core_.OnChange(2, {.event = WorkerEvent::kContinued, .signal = SIGCONT}));
  Exit(2, {.event = WorkerEvent::kExited, .signal = SIGSEGV, .core_dumped = true});
  EXPECT_EQ(Done(), Words({"stopped 2: 19", "stopped 2: 0", "exited 2: signal 11, core"}));
  Do(core_.OnChange(5, {.event = WorkerEvent::kExited}));
  EXPECT_EQ(Done(), Words()) << "it never ran";
  EXPECT_FALSE(core_.stopping());
}

// --- the graceful kill ---

TEST_F(SupervisorWorkersCoreTest, TermFollowsAnotherFirstSignal) {
  Configure(seconds(10));
  Spawn({0});
  left_ += 1;  // a child of the worker that ignores SIGINT
  Done();
  Stop(/*kill_now=*/false, SIGINT);
  EXPECT_EQ(Done(), Words({"INT"}));
  Pass(Ms(7'999));
  EXPECT_EQ(Done(), Words());
  Exit(0, {.event = WorkerEvent::kExited, .signal = SIGINT});
  EXPECT_EQ(Done(), Words({"exited 0: signal 2, stopping", "TERM"}));
  Pass(Ms(2'001));
  EXPECT_EQ(Done(), Words({"TERM", "TERM", "KILL"})) << "again for what lost it";
}

TEST_F(SupervisorWorkersCoreTest, StopWaitsForTheLastDescendant) {
  Configure(seconds(10));
  Spawn({0});
  left_ += 1;  // a child of the worker
  Done();
  Stop();
  Exit(0, {.event = WorkerEvent::kExited, .signal = SIGTERM});
  EXPECT_EQ(Done(), Words({"TERM", "exited 0: signal 15, stopping"}));
  Pass(Ms(999));
  EXPECT_EQ(Done(), Words());
  Pass(Ms(1));
  EXPECT_EQ(Done(), Words({"TERM"})) << "again for what lost it";
  Pass(seconds(9));
  EXPECT_EQ(Done().back(), "KILL");
  left_ = 0;
  Pass(Ms(50));
  EXPECT_EQ(Done(), Words({"forget", "all reaped, left 0"}));
}

TEST_F(SupervisorWorkersCoreTest, DoesNotSignalProcessApartThatEndsItself) {
  Configure(seconds(10));
  Spawn({0});
  apart_ = 1;
  Done();
  Stop();
  EXPECT_EQ(Done(), Words({"TERM"}));
  Exit(0, {.event = WorkerEvent::kExited, .signal = SIGTERM});
  EXPECT_EQ(Done(), Words({"exited 0: signal 15, stopping"}));
  apart_ = 0;
  Pass(Ms(1));
  Count();
  EXPECT_EQ(Done(), Words({"forget", "all reaped, left 0"}));
}

TEST_F(SupervisorWorkersCoreTest, SignalsProcessApartThatOutlivesTheRanks) {
  Configure(seconds(3));
  Spawn({0});
  apart_ = 1;
  Stop();
  Exit(0, {.event = WorkerEvent::kExited, .signal = SIGTERM});
  Done();
  Pass(Ms(499));
  EXPECT_EQ(Done(), Words());
  Pass(Ms(1));
  EXPECT_EQ(Done(), Words({"TERM to all"}));
  Pass(Ms(2'500));
  EXPECT_EQ(Done(), Words({"TERM to all", "TERM to all", "KILL to all"}));
}

TEST_F(SupervisorWorkersCoreTest, KillNowCutsTheGraceShort) {
  Configure(seconds(60));
  Spawn({0});
  Stop();
  Done();
  Pass(seconds(1));
  Stop(/*kill_now=*/true);
  EXPECT_EQ(Done(), Words({"KILL"}));
  Exit(0, {.event = WorkerEvent::kKilled, .signal = SIGKILL});
  EXPECT_EQ(Done(), Words({"exited 0: signal 9, stopping", "forget", "all reaped, left 0"}));
}

TEST_F(SupervisorWorkersCoreTest, ForeignSigkillDuringStopIsAFailure) {
  Configure(seconds(10));
  Spawn({0});
  Stop();
  Done();
  Exit(0, {.event = WorkerEvent::kKilled, .signal = SIGKILL});
  EXPECT_EQ(Done()[0], "exited 0: signal 9");
}

TEST_F(SupervisorWorkersCoreTest, ReportsProcessesThatCannotBeEnded) {
  Configure(seconds(1), /*teardown=*/seconds(2));
  Spawn({0});
  Stop();
  Done();
  Pass(Ms(2'999));
  EXPECT_EQ(Done(), Words({"KILL"}));
  Pass(Ms(1));
  EXPECT_EQ(Done(), Words({"print these processes did not end after SIGKILL: "
                           "500 (python3, D state)",
                           "all reaped, left 1"}));
}

TEST_F(SupervisorWorkersCoreTest, OmitsProcessThatEndsWhileListed) {
  Configure(seconds(1), /*teardown=*/seconds(2));
  Spawn({0});
  Stop();
  Pass(Ms(2'999));
  Done();
  ends_while_listed_ = true;
  Pass(Ms(1));
  EXPECT_EQ(Done(), Words({"forget", "all reaped, left 0"}));
}

TEST_F(SupervisorWorkersCoreTest, StartsNothingDuringStopAndUsesNewCgroupAfter) {
  Configure(seconds(10));
  Spawn({0});
  Stop();
  Done();
  Spawn({1, 2});
  EXPECT_EQ(Done(), Words({"spawn failed 1: 125, start while the node is being stopped",
                           "spawn failed 2: 125, start while the node is being stopped"}));
  Exit(0, {.event = WorkerEvent::kExited, .signal = SIGTERM});
  Done();
  Spawn({0});
  EXPECT_EQ(Done(), Words({"cgroup /cgroup", "spawned 0 as 102"}));
  Exit(0, {.event = WorkerEvent::kExited, .exit_code = 9});
  EXPECT_EQ(Done(), Words({"exited 0: 9"})) << "of its own doing";
}

TEST_F(SupervisorWorkersCoreTest, RefusesStartsOfNodeThatIsEnding) {
  Configure();
  Spawn({0}, /*is_refused=*/true);
  EXPECT_EQ(Done(), Words({"spawn failed 0: 125, start while the node is being stopped"}));
}

TEST_F(SupervisorWorkersCoreTest, AnswersOnlyARequestedStop) {
  Configure();
  core_.BeginKill();
  Count();
  EXPECT_EQ(Done(), Words({"forget"}));
}

}  // namespace
}  // namespace dslaunch::supervisor_workers_core_test
