#include "agent/supervisor/watchdog.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>

#include "tests/unit/agent/supervisor/supervisor_harness.h"

namespace dslaunch::watchdog_test {
namespace {

using Ms = milliseconds;

const std::vector<std::string> kStubborn = {"--ignore-term", "--spawn-setsid-grandchild",
                                            "--grandchild-ignore-term", "--sleep-ms", "600000"};

// Kills both processes as if at the same instant. The supervisor is stopped first, so that it does
// not notice its agent's death.
void KillSupervisorAndAgent(SupervisorHarness& supervisor) {
  kill(supervisor.supervisor(), SIGSTOP);
  ASSERT_TRUE(WaitFor(Ms(5000), [&] { return StateOf(supervisor.supervisor()) == 'T'; }));
  kill(supervisor.agent(), SIGKILL);
  kill(supervisor.supervisor(), SIGKILL);
  EXPECT_EQ(supervisor.WaitEnd(), 128 + SIGKILL);
}

// The parameter is true for tests without a cgroup.
class WithoutSupervisorAndAgent : public testing::TestWithParam<bool> {
 protected:
  SupervisorHarness supervisor_{
      {.one_socket = false, .without_cgroup = GetParam(), .run_agent = {}}};
};

TEST_P(WithoutSupervisorAndAgent, EndsGrandchildrenInOtherSessionsAfterGrace) {
  supervisor_.Configure(Ms(400));
  const std::vector<pid_t> workers = supervisor_.StartWorkers(2, kStubborn);
  const pid_t grandchild = AwaitPidFile(supervisor_.dir() / "grandchild_0.pid");
  const pid_t watchdog = supervisor_.AwaitWatchdog();
  ASSERT_GT(watchdog, 0);
  const auto start = Clock::now();
  KillSupervisorAndAgent(supervisor_);
  for (const pid_t worker : workers) EXPECT_TRUE(WaitFor(Ms(2000), [=] { return IsGone(worker); }));
  EXPECT_TRUE(WaitFor(Ms(5000), [=] { return IsGone(grandchild); }));
  EXPECT_GE(Clock::now() - start, Ms(400)) << "the grace was cut short";
  EXPECT_TRUE(supervisor_.IsEmpty(Ms(2000)));
  EXPECT_TRUE(WaitFor(Ms(2000), [=] { return IsGone(watchdog); })) << "it outlived the job";
}

// Without a cgroup, the child can be found only by its process group.
TEST_P(WithoutSupervisorAndAgent, EndsChildOfSecondAttemptByItsGroup) {
  supervisor_.Configure(Ms(300));
  supervisor_.StartWorkers(1, kStubborn);
  supervisor_.Stop(true);
  ASSERT_TRUE(supervisor_.NextReaped());
  supervisor_.SpawnWorkers({supervisor_.WorkerWithChild(0, /*own_session=*/false)});
  const pid_t child = AwaitPidFile(supervisor_.dir() / "child");
  ASSERT_GT(child, 0);
  EXPECT_NE(getpgid(child), child);
  KillSupervisorAndAgent(supervisor_);
  EXPECT_TRUE(WaitFor(Ms(5000), [=] { return IsGone(child); }));
}

INSTANTIATE_TEST_SUITE_P(All, WithoutSupervisorAndAgent, testing::Bool(), [](const auto& which) {
  return std::string(which.param ? "WithoutCgroup" : "WithCgroupIfThereIsOne");
});

TEST(Watchdog, EndsByCgroupChildThatLeftItsGroup) {
  SupervisorHarness supervisor;
  supervisor.Configure(Ms(300));
  supervisor.SpawnWorkers({supervisor.WorkerWithChild(0, /*own_session=*/true)});
  const pid_t child = AwaitPidFile(supervisor.dir() / "child");
  ASSERT_GT(child, 0);
  ASSERT_TRUE(supervisor.Next());
  if (supervisor.cgroup().empty()) GTEST_SKIP() << "no cgroup v2 can be made here";
  KillSupervisorAndAgent(supervisor);
  EXPECT_TRUE(WaitFor(Ms(5000), [=] { return IsGone(child); }));
  EXPECT_TRUE(WaitFor(Ms(2000), [&] { return !std::filesystem::exists(supervisor.cgroup()); }));
}

TEST(Watchdog, SleepsWhileTheAgentLives) {
  SupervisorHarness supervisor;
  supervisor.Configure(Ms(100));
  supervisor.StartWorkers(1, kStubborn);
  const pid_t grandchild = AwaitPidFile(supervisor.dir() / "grandchild_0.pid");
  const pid_t watchdog = supervisor.AwaitWatchdog();
  ASSERT_GT(watchdog, 0);
  kill(supervisor.supervisor(), SIGKILL);
  EXPECT_EQ(supervisor.WaitEnd(), 128 + SIGKILL);
  EXPECT_FALSE(WaitFor(Ms(500), [=] { return IsGone(grandchild); })) << "the agent sweeps, not it";
  kill(supervisor.agent(), SIGKILL);
  EXPECT_TRUE(WaitFor(Ms(5000), [=] { return IsGone(grandchild) && IsGone(watchdog); }));
}

TEST(Watchdog, EndsWithItsSupervisor) {
  SupervisorHarness supervisor;
  supervisor.Configure(Ms(300));
  supervisor.StartWorkers(1, kStubborn);
  const pid_t watchdog = supervisor.AwaitWatchdog();
  ASSERT_GT(watchdog, 0);
  EXPECT_EQ(getsid(watchdog), watchdog);
  supervisor.EndAgent(0);
  EXPECT_EQ(supervisor.WaitEnd(), 0);
  EXPECT_EQ(StateOf(watchdog), '-') << "not reaped";
}

TEST(Watchdog, DoesNotExistBeforeTheFirstWorkers) {
  SupervisorHarness supervisor;
  supervisor.Configure(Ms(300));
  supervisor.Stop();
  ASSERT_TRUE(supervisor.NextReaped());
  EXPECT_FALSE(WaitFor(Ms(100), [&] { return supervisor.FindWatchdog() > 0; }));
}

TEST(Watchdog, SurvivesSignalsAndTheGracefulKill) {
  SupervisorHarness supervisor;
  supervisor.Configure(Ms(300));
  supervisor.StartWorkers(1, kStubborn);
  const pid_t watchdog = supervisor.AwaitWatchdog();
  ASSERT_GT(watchdog, 0);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGPIPE, SIGTSTP})
    kill(watchdog, signal);
  supervisor.Stop();
  const auto reaped = supervisor.NextReaped();
  ASSERT_TRUE(reaped);
  EXPECT_EQ(reaped->left_size(), 0);
  EXPECT_FALSE(IsGone(watchdog));
}

TEST(Watchdog, JobContinuesAfterItIsKilled) {
  SupervisorHarness supervisor;
  supervisor.Configure(Ms(300));
  supervisor.StartWorkers(1, kStubborn);
  const pid_t watchdog = supervisor.AwaitWatchdog();
  ASSERT_GT(watchdog, 0);
  kill(watchdog, SIGKILL);
  ASSERT_TRUE(WaitFor(Ms(5000), [&] { return supervisor.FindWatchdog() == 0; }));
  supervisor.SpawnWorkers({supervisor.Worker(1, {"--exit-code", "4"})});
  const auto event = supervisor.NextOutcome();
  ASSERT_TRUE(event && event->has_exited());
  EXPECT_EQ(event->exited().exit_code(), 4);
  supervisor.Stop(true);
  ASSERT_TRUE(supervisor.NextReaped());
  supervisor.EndAgent(0);
  EXPECT_EQ(supervisor.WaitEnd(), 0);
}

}  // namespace
}  // namespace dslaunch::watchdog_test
