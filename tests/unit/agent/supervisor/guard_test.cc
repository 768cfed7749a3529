#include "agent/supervisor/guard.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>

#include "tests/unit/agent/supervisor/keeper_harness.h"

namespace dslaunch {
namespace {

using Ms = milliseconds;

const std::vector<std::string> kStubborn = {"--ignore-term", "--spawn-setsid-grandchild",
                                            "--grandchild-ignore-term", "--sleep-ms", "600000"};

// As one instant: the keeper is stopped first, so that it sees nothing of its agent's death.
void KillKeeperAndAgent(KeeperHarness& keeper) {
  kill(keeper.keeper(), SIGSTOP);
  ASSERT_TRUE(WaitFor(Ms(5000), [&] { return StateOf(keeper.keeper()) == 'T'; }));
  kill(keeper.agent(), SIGKILL);
  kill(keeper.keeper(), SIGKILL);
  EXPECT_EQ(keeper.WaitEnd(), 128 + SIGKILL);
}

// The parameter: without a cgroup.
class WithoutKeeperAndAgent : public testing::TestWithParam<bool> {
 protected:
  KeeperHarness keeper_{{.one_socket = false, .without_cgroup = GetParam(), .run_agent = {}}};
};

TEST_P(WithoutKeeperAndAgent, GrandchildrenInSessionsOfTheirOwnEndAfterTheGrace) {
  keeper_.Configure(Ms(400));
  const std::vector<pid_t> workers = keeper_.StartWorkers(2, kStubborn);
  const pid_t grandchild = AwaitPidFile(keeper_.dir() / "grandchild_0.pid");
  const pid_t guard = keeper_.AwaitGuard();
  ASSERT_GT(guard, 0);
  const auto start = Clock::now();
  KillKeeperAndAgent(keeper_);
  for (const pid_t worker : workers) EXPECT_TRUE(WaitFor(Ms(2000), [=] { return IsGone(worker); }));
  EXPECT_TRUE(WaitFor(Ms(5000), [=] { return IsGone(grandchild); }));
  EXPECT_GE(Clock::now() - start, Ms(400)) << "the grace was cut short";
  EXPECT_TRUE(keeper_.IsEmpty(Ms(2000)));
  EXPECT_TRUE(WaitFor(Ms(2000), [=] { return IsGone(guard); })) << "it outlived the job";
}

// By its group only, where there is no cgroup.
TEST_P(WithoutKeeperAndAgent, AChildOfTheSecondEpochThatWipedItsEnvironmentEnds) {
  keeper_.Configure(Ms(300));
  keeper_.StartWorkers(1, kStubborn);
  keeper_.Stop(true);
  ASSERT_TRUE(keeper_.NextReaped());
  keeper_.SpawnWorkers({keeper_.WorkerWithChild(0, /*own_session=*/false)});
  const pid_t child = AwaitPidFile(keeper_.dir() / "child");
  ASSERT_GT(child, 0);
  EXPECT_NE(getpgid(child), child);
  KillKeeperAndAgent(keeper_);
  EXPECT_TRUE(WaitFor(Ms(5000), [=] { return IsGone(child); }));
}

INSTANTIATE_TEST_SUITE_P(All, WithoutKeeperAndAgent, testing::Bool(), [](const auto& which) {
  return std::string(which.param ? "WithoutCgroup" : "WithCgroupIfThereIsOne");
});

TEST(Guard, WithACgroupItEndsEvenWhatLeftItsGroupAndWipedItsEnvironment) {
  KeeperHarness keeper;
  keeper.Configure(Ms(300));
  keeper.SpawnWorkers({keeper.WorkerWithChild(0, /*own_session=*/true)});
  const pid_t child = AwaitPidFile(keeper.dir() / "child");
  ASSERT_GT(child, 0);
  ASSERT_TRUE(keeper.Next());
  if (keeper.cgroup().empty()) GTEST_SKIP() << "no cgroup v2 can be made here";
  KillKeeperAndAgent(keeper);
  EXPECT_TRUE(WaitFor(Ms(5000), [=] { return IsGone(child); }));
  EXPECT_TRUE(WaitFor(Ms(2000), [&] { return !std::filesystem::exists(keeper.cgroup()); }));
}

TEST(Guard, ItSleepsWhileTheAgentLives) {
  KeeperHarness keeper;
  keeper.Configure(Ms(100));
  keeper.StartWorkers(1, kStubborn);
  const pid_t grandchild = AwaitPidFile(keeper.dir() / "grandchild_0.pid");
  const pid_t guard = keeper.AwaitGuard();
  ASSERT_GT(guard, 0);
  kill(keeper.keeper(), SIGKILL);
  EXPECT_EQ(keeper.WaitEnd(), 128 + SIGKILL);
  EXPECT_FALSE(WaitFor(Ms(500), [=] { return IsGone(grandchild); })) << "the agent sweeps, not it";
  kill(keeper.agent(), SIGKILL);
  EXPECT_TRUE(WaitFor(Ms(5000), [=] { return IsGone(grandchild) && IsGone(guard); }));
}

TEST(Guard, ItEndsWithItsKeeper) {
  KeeperHarness keeper;
  keeper.Configure(Ms(300));
  keeper.StartWorkers(1, kStubborn);
  const pid_t guard = keeper.AwaitGuard();
  ASSERT_GT(guard, 0);
  EXPECT_EQ(getsid(guard), guard);
  keeper.EndAgent(0);
  EXPECT_EQ(keeper.WaitEnd(), 0);
  EXPECT_EQ(StateOf(guard), '-') << "not reaped";
}

TEST(Guard, NoneIsStartedBeforeThereAreWorkers) {
  KeeperHarness keeper;
  keeper.Configure(Ms(300));
  keeper.Stop();
  ASSERT_TRUE(keeper.NextReaped());
  EXPECT_FALSE(WaitFor(Ms(100), [&] { return keeper.FindGuard() > 0; }));
}

TEST(Guard, SignalsDoNotEndItAndTheLadderSparesIt) {
  KeeperHarness keeper;
  keeper.Configure(Ms(300));
  keeper.StartWorkers(1, kStubborn);
  const pid_t guard = keeper.AwaitGuard();
  ASSERT_GT(guard, 0);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGPIPE, SIGTSTP}) kill(guard, signal);
  keeper.Stop();
  const auto reaped = keeper.NextReaped();
  ASSERT_TRUE(reaped);
  EXPECT_EQ(reaped->left_size(), 0);
  EXPECT_FALSE(IsGone(guard));
}

TEST(Guard, AJobGoesOnWithoutIt) {
  KeeperHarness keeper;
  keeper.Configure(Ms(300));
  keeper.StartWorkers(1, kStubborn);
  const pid_t guard = keeper.AwaitGuard();
  ASSERT_GT(guard, 0);
  kill(guard, SIGKILL);
  ASSERT_TRUE(WaitFor(Ms(5000), [&] { return keeper.FindGuard() == 0; }));
  keeper.SpawnWorkers({keeper.Worker(1, {"--exit-code", "4"})});
  const auto event = keeper.NextOutcome();
  ASSERT_TRUE(event && event->has_exited());
  EXPECT_EQ(event->exited().exit_code(), 4);
  keeper.Stop(true);
  ASSERT_TRUE(keeper.NextReaped());
  keeper.EndAgent(0);
  EXPECT_EQ(keeper.WaitEnd(), 0);
}

}  // namespace
}  // namespace dslaunch
