#include "agent/supervisor/keeper.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "agent/supervisor/cgroup.h"
#include "agent/supervisor/orphan_sweep.h"
#include "base/subprocess.h"
#include "tests/unit/agent/supervisor/keeper_harness.h"

namespace dslaunch {
namespace {

using Ms = milliseconds;

// Two ranks, deaf to SIGTERM, each with a child in a session of its own that is deaf too.
const std::vector<std::string> kStubborn = {"--ignore-term", "--spawn-setsid-grandchild",
                                            "--grandchild-ignore-term", "--sleep-ms", "600000"};
const std::vector<std::string> kPolite = {"--sleep-ms", "600000"};

// --- the start ---

TEST(Keeper, SaysHelloFirst) {
  KeeperHarness keeper;
  EXPECT_EQ(keeper.hello(), "DSLAUNCH-HELLO nonce build\n");
}

TEST(Keeper, AgentIsInAGroupOfItsOwnAndDumpsNoCore) {
  KeeperHarness keeper;
  EXPECT_EQ(getpgid(keeper.agent()), keeper.agent());
  EXPECT_EQ(getsid(keeper.agent()), keeper.keeper());
  rlimit core = {};
  ASSERT_EQ(prlimit(keeper.agent(), RLIMIT_CORE, nullptr, &core), 0);
  EXPECT_EQ(core.rlim_cur, 0u);
}

// --- workers ---

TEST(Keeper, ReportsHowEachWorkerEnded) {
  KeeperHarness keeper;
  keeper.SpawnWorkers({keeper.Worker(0, {}), keeper.Worker(1, {"--exit-code", "7"}),
                       keeper.Worker(2, {"--kill-self", "KILL"})});
  std::map<uint32_t, pb::WorkerExited> ended;
  while (ended.size() < 3) {
    const auto event = keeper.NextOutcome();
    ASSERT_TRUE(event && event->has_exited());
    EXPECT_FALSE(event->exited().stopping());
    ended[event->exited().local_rank()] = event->exited();
  }
  EXPECT_EQ(ended[0].exit_code(), 0);
  EXPECT_EQ(ended[0].signal(), 0);
  EXPECT_EQ(ended[1].exit_code(), 7);
  EXPECT_EQ(ended[2].signal(), SIGKILL);
}

TEST(Keeper, ReportsWhatCouldNotStartAndStartsTheRest) {
  KeeperHarness keeper;
  pb::WorkerSpec missing = keeper.Worker(0, {});
  missing.set_argv(0, keeper.dir() / "missing");
  pb::WorkerSpec no_log = keeper.Worker(1, {});
  no_log.set_stderr_path(keeper.dir() / "missing/stderr.log");
  pb::WorkerSpec link = keeper.Worker(2, {});
  ASSERT_EQ(symlink("/dev/null", (keeper.dir() / "link").c_str()), 0);
  link.set_stdout_path(keeper.dir() / "link");
  keeper.SpawnWorkers({missing, no_log, link, keeper.Worker(3, {"--exit-code", "3"})});
  const auto expect_failed = [&](uint32_t rank, int error_number, const std::string& step) {
    const auto event = keeper.NextOutcome();
    ASSERT_TRUE(event && event->has_spawn_failed());
    EXPECT_EQ(event->spawn_failed().local_rank(), rank);
    EXPECT_EQ(event->spawn_failed().error_number(), error_number);
    EXPECT_EQ(event->spawn_failed().step(), step);
  };
  expect_failed(0, ENOENT, "execve");
  expect_failed(1, ENOENT, "open stderr file");
  expect_failed(2, ELOOP, "open stdout file");
  const auto event = keeper.NextOutcome();
  ASSERT_TRUE(event && event->has_exited());
  EXPECT_EQ(event->exited().exit_code(), 3);
}

TEST(Keeper, WorkerGetsItsFilesFolderAndTheCallersLimits) {
  KeeperHarness keeper;
  rlimit core = {};
  getrlimit(RLIMIT_CORE, &core);
  keeper.SpawnWorkers(
      {keeper.ShellWorker(0,
                          "pwd -P; umask; ulimit -c; readlink /proc/$$/fd/0; grep SigIgn "
                          "/proc/self/status; echo x >&2")});
  const auto event = keeper.NextOutcome();
  ASSERT_TRUE(event && event->has_exited());
  const std::string limit =
      core.rlim_cur == RLIM_INFINITY ? "unlimited" : std::to_string(core.rlim_cur / 512);
  EXPECT_EQ(ReadFile(keeper.LogPath(0, "stdout")),
            keeper.dir().path() + "\n0022\n" + limit + "\n/dev/null\nSigIgn:\t0000000000000000\n");
  EXPECT_EQ(ReadFile(keeper.LogPath(0, "stderr")), "x\n");
  struct stat status = {};
  ASSERT_EQ(stat(keeper.LogPath(0, "stdout").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
}

TEST(Keeper, WorkerHasNoOtherDescriptorThanItsOwn) {
  KeeperHarness keeper;
  // No pipeline and no redirection: the shell would keep descriptors of its own for them.
  keeper.SpawnWorkers(
      {keeper.ShellWorker(0,
                          "echo $DSLAUNCH_STATUS_FD; "
                          "test -p /proc/$$/fd/$DSLAUNCH_STATUS_FD && ls /proc/$$/fd; true")});
  ASSERT_TRUE(keeper.NextOutcome());
  std::istringstream printed(ReadFile(keeper.LogPath(0, "stdout")));
  int status_fd = -1;
  printed >> status_fd;
  std::set<int> open;
  for (int fd = 0; printed >> fd;) open.insert(fd);
  EXPECT_EQ(open, (std::set<int>{0, 1, 2, status_fd}));
}

TEST(Keeper, ForwardsStatusLinesBeforeTheExit) {
  KeeperHarness keeper;
  keeper.SpawnWorkers({keeper.Worker(0, {"--status-steps", "3"})});
  std::string lines;
  while (true) {
    const auto event = keeper.Next();
    ASSERT_TRUE(event);
    if (event->has_status()) lines += event->status().data();
    if (event->has_exited()) break;
  }
  EXPECT_EQ(std::ranges::count(lines, '\n'), 4);
  EXPECT_EQ(lines.substr(0, 18), "{\"event\":\"ready\"}\n");
  EXPECT_NE(lines.find("\"step\":3,"), std::string::npos);
}

TEST(Keeper, AFloodOfStatusLinesBlocksNoWorkerAndNoMemory) {
  KeeperHarness keeper;
  const std::vector<pid_t> pids =
      keeper.StartWorkers(1, {"--status-steps", "400000"});  // about 30 MB
  // Nobody reads the control socket meanwhile.
  ASSERT_TRUE(WaitFor(Ms(60'000), [&] { return IsGone(pids[0]); }));
  size_t status_bytes = 0;
  while (true) {
    const auto event = keeper.Next();
    ASSERT_TRUE(event) << "the exit was lost";
    status_bytes += event->status().data().size();
    if (event->has_exited()) break;
  }
  EXPECT_GT(status_bytes, 0u);
  EXPECT_LT(status_bytes, size_t{4} << 20);
}

TEST(Keeper, ReportsAStoppedAndAContinuedWorker) {
  KeeperHarness keeper;
  const std::vector<pid_t> pids = keeper.StartWorkers(1, kPolite);
  kill(pids[0], SIGSTOP);
  auto event = keeper.NextOutcome(Ms(1000));
  ASSERT_TRUE(event && event->has_stopped());
  EXPECT_EQ(event->stopped().signal(), SIGSTOP);
  kill(pids[0], SIGCONT);
  event = keeper.NextOutcome(Ms(1000));
  ASSERT_TRUE(event && event->has_stopped());
  EXPECT_EQ(event->stopped().signal(), 0);
}

TEST(Keeper, ForwardsASignalToTheWorkers) {
  KeeperHarness keeper;
  keeper.StartWorkers(2, kPolite);
  pb::KeeperRequest request;
  request.mutable_signal()->set_signal(SIGUSR1);
  keeper.Send(request);
  for (int i = 0; i < 2; ++i) {
    const auto event = keeper.NextOutcome();
    ASSERT_TRUE(event && event->has_exited());
    EXPECT_EQ(event->exited().signal(), SIGUSR1);
    EXPECT_FALSE(event->exited().stopping());
  }
}

TEST(Keeper, RefusesALocalRankThatRunsAlready) {
  KeeperHarness keeper;
  keeper.StartWorkers(1, kPolite);
  keeper.SpawnWorkers({keeper.Worker(0, {})});
  const auto event = keeper.NextOutcome();
  ASSERT_TRUE(event && event->has_spawn_failed());
  EXPECT_EQ(event->spawn_failed().error_number(), EEXIST);
  EXPECT_EQ(PidsOfJob(keeper.job_id()).size(), 1u);
}

// --- StopWorkers ---

TEST(Keeper, StopEndsPoliteWorkersAtOnce) {
  KeeperHarness keeper;
  keeper.Configure(Ms(10'000));
  keeper.StartWorkers(2, kPolite);
  const auto start = Clock::now();
  keeper.Stop();
  for (int i = 0; i < 2; ++i) {
    const auto event = keeper.NextOutcome();
    ASSERT_TRUE(event && event->has_exited());
    EXPECT_EQ(event->exited().signal(), SIGTERM);
    EXPECT_TRUE(event->exited().stopping());
  }
  const auto event = keeper.NextOutcome();
  ASSERT_TRUE(event && event->has_all_reaped());
  EXPECT_EQ(event->all_reaped().left_size(), 0);
  EXPECT_LT(Clock::now() - start, Ms(2000));
}

TEST(Keeper, StopKillsWhatIgnoresSigtermInWhateverSession) {
  KeeperHarness keeper;
  keeper.Configure(Ms(700));
  keeper.StartWorkers(2, kStubborn);
  ASSERT_EQ(PidsOfJob(keeper.job_id()).size(), 4u);
  const auto start = Clock::now();
  keeper.Stop();
  const auto reaped = keeper.NextReaped();
  ASSERT_TRUE(reaped);
  const auto took = Clock::now() - start;
  EXPECT_TRUE(keeper.IsEmpty());
  EXPECT_EQ(reaped->left_size(), 0);
  EXPECT_GE(took, Ms(700)) << "the grace was cut short";
  EXPECT_LT(took, Ms(1700));
}

TEST(Keeper, StopWithKillNowGivesNoGrace) {
  KeeperHarness keeper;
  keeper.Configure(Ms(60'000));
  keeper.StartWorkers(1, kStubborn);
  keeper.Stop();
  EXPECT_FALSE(keeper.NextOutcome(Ms(200))) << "it ignores SIGTERM";
  keeper.Stop(true);
  auto event = keeper.NextOutcome(Ms(3000));
  ASSERT_TRUE(event && event->has_exited());
  EXPECT_EQ(event->exited().signal(), SIGKILL);
  event = keeper.NextOutcome(Ms(3000));
  ASSERT_TRUE(event && event->has_all_reaped());
  EXPECT_TRUE(keeper.IsEmpty());
}

TEST(Keeper, StopWakesAStoppedWorkerSoThatItCanHeedSigterm) {
  KeeperHarness keeper;
  keeper.Configure(Ms(60'000));
  const std::vector<pid_t> pids = keeper.StartWorkers(1, kPolite);
  kill(pids[0], SIGSTOP);
  ASSERT_TRUE(keeper.NextOutcome());
  keeper.Stop();
  const auto event = keeper.NextOutcome(Ms(3000));
  ASSERT_TRUE(event && event->has_exited());
  EXPECT_EQ(event->exited().signal(), SIGTERM);
}

TEST(Keeper, StopReachesChildrenThatAWorkerLeftBehind) {
  KeeperHarness keeper;
  keeper.Configure(Ms(10'000));
  keeper.SpawnWorkers({keeper.Worker(0, {"--spawn-setsid-grandchild"})});
  auto event = keeper.NextOutcome();
  ASSERT_TRUE(event && event->has_exited());
  ASSERT_EQ(PidsOfJob(keeper.job_id()).size(), 1u);
  keeper.Stop();
  event = keeper.NextOutcome(Ms(3000));
  ASSERT_TRUE(event && event->has_all_reaped());
  EXPECT_TRUE(keeper.IsEmpty());
}

TEST(Keeper, StopOutrunsAProgramThatKeepsForkingIntoNewSessions) {
  KeeperHarness keeper;
  keeper.Configure(Ms(100));
  keeper.SpawnWorkers(
      {keeper.ShellWorker(0,
                          "trap '' TERM; touch started; while :; do setsid sh -c \"trap "
                          "'' TERM; sleep 1000\" & sleep 0.01; done")});
  ASSERT_TRUE(WaitFor(Ms(10'000), [&] { return PidsOfJob(keeper.job_id()).size() > 10; }));
  keeper.Stop();
  const auto reaped = keeper.NextReaped();
  ASSERT_TRUE(reaped);
  EXPECT_EQ(reaped->left_size(), 0);
  EXPECT_TRUE(keeper.IsEmpty());
}

TEST(Keeper, StopOfAnEmptyNodeAnswersAtOnce) {
  KeeperHarness keeper;
  keeper.Stop();
  const auto event = keeper.NextOutcome(Ms(1000));
  ASSERT_TRUE(event && event->has_all_reaped());
}

TEST(Keeper, StartsNothingWhileStoppingAndAgainAfterwards) {
  KeeperHarness keeper;
  keeper.Configure(Ms(500));
  keeper.StartWorkers(1, kStubborn);
  keeper.Stop();
  keeper.SpawnWorkers({keeper.Worker(5, {})});
  auto event = keeper.NextOutcome();
  ASSERT_TRUE(event && event->has_spawn_failed());
  EXPECT_EQ(event->spawn_failed().error_number(), ECANCELED);
  ASSERT_TRUE(keeper.NextReaped());
  keeper.SpawnWorkers({keeper.Worker(0, {"--exit-code", "9"})});
  event = keeper.NextOutcome();
  ASSERT_TRUE(event && event->has_exited());
  EXPECT_EQ(event->exited().exit_code(), 9);
  EXPECT_FALSE(event->exited().stopping());
}

// Deaf to SIGTERM and found by nothing but its cgroup and its parent.
TEST(Keeper, StopEndsWhatWipedItsEnvironment) {
  KeeperHarness keeper;
  keeper.Configure(Ms(200));
  keeper.SpawnWorkers({keeper.WorkerWithChild(0, /*own_session=*/true)});
  const pid_t child = AwaitPidFile(keeper.dir() / "child");
  ASSERT_GT(child, 0);
  keeper.Stop();
  ASSERT_TRUE(keeper.NextReaped());
  EXPECT_TRUE(IsGone(child));
}

TEST(Keeper, StopWaitsUntilTheWorkersCgroupIsEmptyAndRemovesIt) {
  KeeperHarness keeper;
  keeper.Configure(Ms(200));
  keeper.StartWorkers(1, kPolite);
  ASSERT_TRUE(keeper.Next());
  if (keeper.cgroup().empty()) GTEST_SKIP() << "no cgroup v2 can be made here";
  // Not a descendant of the keeper.
  const SpawnResult stranger =
      Spawn({.executable = DSLAUNCH_FAKE_WORKER,
             .argv = {"fake_worker", "--ignore-term", "--sleep-ms", "60000"}});
  ASSERT_GT(stranger.pid, 0);
  std::ofstream(keeper.cgroup() + "/cgroup.procs") << stranger.pid;
  keeper.Stop();
  const auto reaped = keeper.NextReaped();
  ASSERT_TRUE(reaped);
  EXPECT_EQ(reaped->left_size(), 0);
  int status = 0;
  EXPECT_EQ(waitpid(stranger.pid, &status, WNOHANG), stranger.pid);
  EXPECT_EQ(WTERMSIG(status), SIGKILL);
  EXPECT_FALSE(std::filesystem::exists(keeper.cgroup()));
}

// A frozen process does not even die of SIGKILL: the nearest thing to one in an endless wait for a
// disk. It needs the freezer of cgroup v1 and root.
class Freezer {
 public:
  bool Freeze(pid_t pid) {
    std::error_code error;
    if (!std::filesystem::create_directory(folder_, error)) return false;
    std::ofstream(folder_ + "/cgroup.procs") << pid;
    std::ofstream(folder_ + "/freezer.state") << "FROZEN";
    return WaitFor(Ms(2000), [this] { return ReadFile(folder_ + "/freezer.state") == "FROZEN\n"; });
  }
  void Thaw() const { std::ofstream(folder_ + "/freezer.state") << "THAWED"; }
  ~Freezer() {
    Thaw();
    WaitFor(Ms(2000), [this] {
      std::error_code error;
      return std::filesystem::remove(folder_, error) || !std::filesystem::exists(folder_);
    });
  }

 private:
  const std::string folder_ = "/sys/fs/cgroup/freezer/" + NewJobId();
};

TEST(Keeper, NamesWhatCannotBeKilledAndEndsAnyway) {
  Freezer freezer;
  KeeperHarness keeper;
  keeper.Configure(Ms(100), Ms(60'000), /*teardown=*/Ms(300));
  const std::vector<pid_t> workers = keeper.StartWorkers(2, kPolite);
  if (!freezer.Freeze(workers[1])) GTEST_SKIP() << "no freezer of cgroup v1 here";
  const auto start = Clock::now();
  keeper.Stop();
  const auto reaped = keeper.NextReaped();
  ASSERT_TRUE(reaped);
  EXPECT_LT(Clock::now() - start, Ms(3000));
  ASSERT_EQ(reaped->left_size(), 1);
  EXPECT_EQ(reaped->left(0).pid(), workers[1]);
  EXPECT_EQ(reaped->left(0).state(), "D");
  EXPECT_EQ(reaped->left(0).command(), "fake_worker");
  EXPECT_NE(keeper.StderrText().find("these processes did not end after SIGKILL: " +
                                     std::to_string(workers[1]) + " (fake_worker, D state"),
            std::string::npos)
      << keeper.StderrText();
  keeper.EndAgent(0);
  EXPECT_TRUE(keeper.WaitEnd(Ms(5000)));
  EXPECT_FALSE(IsGone(workers[1]));
  freezer.Thaw();
  EXPECT_TRUE(WaitFor(Ms(5000), [&] { return IsGone(workers[1]); }));
  RecordProperty("waits_in", reaped->left(0).waits_in());
  if (!keeper.cgroup().empty()) {
    EXPECT_TRUE(WaitFor(Ms(2000), [&] { return RemoveCgroup(keeper.cgroup()); }));
  }
}

// --- epochs: the same keeper starts workers again ---

TEST(Keeper, EveryEpochHasItsOwnExitsAndStatusLines) {
  KeeperHarness keeper;
  keeper.Configure(Ms(5000));
  for (int epoch = 1; epoch <= 3; ++epoch) {
    SCOPED_TRACE("epoch " + std::to_string(epoch));
    // Rank 0 fails; rank 1 is stopped with what it had started, by SIGKILL every other time.
    keeper.SpawnWorkers({keeper.Worker(0, {"--status-steps", "2", "--exit-code", "7"}),
                         keeper.Worker(1, {"--status-steps", "1", "--spawn-setsid-grandchild",
                                           "--sleep-ms", "600000"})});
    std::string lines;
    std::optional<pb::KeeperEvent> event;
    std::set<int> spawned;
    std::string lines_of_rank_1;
    bool failed = false;
    while (!failed || lines_of_rank_1.find("\"step\":1,") == std::string::npos) {
      event = keeper.Next();
      ASSERT_TRUE(event);
      ASSERT_FALSE(event->has_spawn_failed()) << event->spawn_failed().step();
      if (event->has_spawned()) spawned.insert(event->spawned().pid());
      if (event->has_status()) {
        (event->status().local_rank() == 0 ? lines : lines_of_rank_1) += event->status().data();
      }
      if (!event->has_exited()) continue;
      EXPECT_EQ(event->exited().local_rank(), 0u);
      EXPECT_EQ(event->exited().exit_code(), 7);
      EXPECT_FALSE(event->exited().stopping());
      failed = true;
    }
    EXPECT_EQ(std::ranges::count(lines, '\n'), 3) << "one ready, two steps: " << lines;
    EXPECT_EQ(spawned.size(), 2u);
    keeper.Stop(/*kill_now=*/epoch % 2 == 0);
    event = keeper.NextOutcome();
    ASSERT_TRUE(event && event->has_exited());
    EXPECT_EQ(event->exited().local_rank(), 1u);
    EXPECT_EQ(event->exited().signal(), epoch % 2 == 0 ? SIGKILL : SIGTERM);
    EXPECT_TRUE(event->exited().stopping());
    EXPECT_FALSE(event->exited().out_of_memory());
    event = keeper.NextOutcome();
    ASSERT_TRUE(event && event->has_all_reaped());
    EXPECT_EQ(event->all_reaped().left_size(), 0);
    EXPECT_TRUE(keeper.IsEmpty());
  }
  keeper.EndAgent(0);
  EXPECT_EQ(keeper.WaitEnd(), 0);
}

// What was asked for before the stop is started and ended; nothing is told twice or not at all.
TEST(Keeper, AStopRightBehindASpawnLeavesNothing) {
  KeeperHarness keeper;
  keeper.Configure(Ms(2000));
  for (int epoch = 1; epoch <= 2; ++epoch) {
    std::vector<pb::WorkerSpec> specs;
    for (uint32_t rank = 0; rank < 8; ++rank) specs.push_back(keeper.Worker(rank, kPolite));
    keeper.SpawnWorkers(specs);
    keeper.Stop();
    std::set<uint32_t> spawned, ended;
    while (true) {
      const auto event = keeper.Next();
      ASSERT_TRUE(event);
      if (event->has_spawned()) spawned.insert(event->spawned().local_rank());
      if (event->has_exited()) {
        EXPECT_TRUE(event->exited().stopping());
        EXPECT_TRUE(ended.insert(event->exited().local_rank()).second);
      }
      if (event->has_all_reaped()) break;
    }
    EXPECT_EQ(spawned.size(), 8u);
    EXPECT_EQ(ended.size(), 8u);
    EXPECT_TRUE(keeper.IsEmpty());
  }
}

// --- what makes the keeper end ---

TEST(Keeper, EndsPromptlyWithItsAgent) {
  KeeperHarness keeper;
  keeper.Configure(Ms(10'000));
  ASSERT_EQ(write(keeper.grpc(), "last words", 10), 10);
  const auto start = Clock::now();
  keeper.EndAgent(0);
  EXPECT_EQ(keeper.WaitEnd(), 0);
  EXPECT_LT(Clock::now() - start, Ms(500));
  EXPECT_EQ(ReadUntilEnd(keeper.out(), Ms(1000)), "last words");
  EXPECT_EQ(keeper.StderrText(), "");
}

TEST(Keeper, PassesOnThatItsAgentFailed) {
  KeeperHarness keeper;
  const pid_t agent = keeper.agent();
  keeper.EndAgent(3);
  EXPECT_EQ(keeper.WaitEnd(), 70);
  EXPECT_NE(keeper.StderrText().find("agent (pid " + std::to_string(agent) +
                                     ") ended with exit code 3; "),
            std::string::npos)
      << keeper.StderrText();
}

TEST(Keeper, FrontEndGoneWithoutWorkersEndsAtOnce) {
  KeeperHarness keeper;
  keeper.Configure(Ms(10'000));
  keeper.CloseIn();
  EXPECT_EQ(ReadUntilEnd(keeper.grpc(), Ms(2000)), "");  // the agent sees the end of file
  const auto event = keeper.NextOutcome();
  ASSERT_TRUE(event && event->has_front_end_gone());
  const auto start = Clock::now();
  keeper.EndAgent(0);
  EXPECT_EQ(keeper.WaitEnd(), 0);
  EXPECT_LT(Clock::now() - start, Ms(500));
}

TEST(Keeper, FrontEndGoneEndsEverythingEvenIfTheAgentDoesNothing) {
  KeeperHarness keeper;
  keeper.Configure(Ms(500));
  keeper.StartWorkers(2, kStubborn);
  keeper.DropGrpc();
  const auto start = Clock::now();
  keeper.CloseIn();
  EXPECT_EQ(keeper.WaitEnd(), 0);
  const auto took = Clock::now() - start;
  EXPECT_TRUE(keeper.IsEmpty());
  EXPECT_TRUE(IsGone(keeper.agent()));
  EXPECT_GE(took, Ms(500));
  EXPECT_LT(took, Ms(500 + 2000 + 1000));  // the grace, and 2 s for the agent
}

TEST(Keeper, FrontEndThatCannotBeWrittenToIsGone) {
  KeeperHarness keeper;
  keeper.Configure(Ms(500));
  keeper.StartWorkers(1, kPolite);
  keeper.CloseOut();  // its stdin stays open
  ASSERT_EQ(write(keeper.grpc(), "x", 1), 1);
  keeper.DropGrpc();
  EXPECT_EQ(keeper.WaitEnd(Ms(4000)), 0);
  EXPECT_TRUE(keeper.IsEmpty());
}

pb::KeeperRequest Alive(std::optional<uint32_t> lease_left_ms = {}) {
  pb::KeeperRequest alive;
  alive.mutable_alive();
  if (lease_left_ms) alive.mutable_alive()->set_lease_left_ms(*lease_left_ms);
  return alive;
}

TEST(Keeper, ALeaseThatIsOverEndsTheWorkersEvenIfTheAgentDoesNothing) {
  KeeperHarness keeper;
  keeper.Configure(Ms(200));
  const std::vector<pid_t> pids = keeper.StartWorkers(2, kStubborn);
  keeper.Send(Alive(60'000));
  keeper.Send(Alive(300));
  const auto event = keeper.NextOutcome();
  ASSERT_TRUE(event && event->has_front_end_gone());
  EXPECT_TRUE(WaitFor(Ms(5000), [&] { return IsGone(pids[0]) && IsGone(pids[1]); }));
  keeper.SpawnWorkers({keeper.Worker(0, {})});
  std::optional<pb::KeeperEvent> refused;
  do refused = keeper.NextOutcome();
  while (refused && refused->has_exited());
  EXPECT_TRUE(refused && refused->has_spawn_failed());
  // Others may still need the agent.
  keeper.Stop();
  EXPECT_TRUE(keeper.NextReaped());
  EXPECT_FALSE(IsGone(keeper.agent()));
  keeper.EndAgent(0);
  EXPECT_EQ(keeper.WaitEnd(), 0);
}

TEST(Keeper, WhoStoodStillWaitsForTheAgentButGetsNoNewLease) {
  KeeperHarness keeper;
  keeper.Configure(Ms(200));
  keeper.Send(Alive(1'000));
  keeper.SpawnWorkers({keeper.Worker(0, kPolite)});
  std::optional<pb::KeeperEvent> answer;  // so the lease was read before
  do answer = keeper.Next();
  while (answer && !answer->has_spawned());
  ASSERT_TRUE(answer);
  kill(keeper.keeper(), SIGSTOP);
  WaitFor(Ms(2'000), [] { return false; });
  kill(keeper.keeper(), SIGCONT);
  EXPECT_FALSE(keeper.NextOutcome(Ms(1'000)));
  const auto event = keeper.NextOutcome();
  ASSERT_TRUE(event && event->has_front_end_gone());
  EXPECT_TRUE(WaitFor(Ms(5000), [&] { return IsGone(answer->spawned().pid()); }));
}

TEST(Keeper, ALeaseThatIsRenewedOrVoidEndsNothing) {
  KeeperHarness keeper;
  keeper.Configure(Ms(200));
  keeper.StartWorkers(1, kPolite);
  keeper.Send(Alive(1'000));
  keeper.Send(Alive(60'000));
  keeper.Send(Alive(1'000));
  keeper.Send(Alive());
  pb::KeeperRequest detach;
  detach.mutable_detach();
  keeper.Send(detach);
  keeper.Send(Alive(1));  // it was on its way when the job was detached
  EXPECT_FALSE(keeper.NextOutcome(Ms(1'500)));
}

TEST(Keeper, DeadAgentEndsEverything) {
  KeeperHarness keeper;
  keeper.Configure(Ms(500));
  keeper.StartWorkers(2, kStubborn);
  keeper.DropGrpc();
  kill(keeper.agent(), SIGKILL);
  EXPECT_EQ(keeper.WaitEnd(Ms(3000)), 70);
  EXPECT_TRUE(keeper.IsEmpty());
  char host[256] = {};
  gethostname(host, sizeof host - 1);
  EXPECT_EQ(keeper.StderrText(), "dslaunch-agent on " + std::string(host) + ": agent (pid " +
                                     std::to_string(keeper.agent()) +
                                     ") was killed by SIGKILL; its workers were stopped\n");
}

TEST(Keeper, SilentAgentEndsEverythingAndItself) {
  KeeperHarness keeper;
  keeper.Configure(Ms(500), Ms(600));
  keeper.StartWorkers(1, kPolite);
  keeper.DropGrpc();
  kill(keeper.agent(), SIGSTOP);
  const auto start = Clock::now();
  // Signs of life, whoever sends them, put it off.
  while (Clock::now() - start < Ms(1500)) {
    keeper.Send(Alive());
    WaitFor(Ms(100), [] { return false; });
  }
  EXPECT_FALSE(keeper.IsEmpty());
  EXPECT_EQ(keeper.WaitEnd(Ms(4000)), 70);
  EXPECT_GT(Clock::now() - start, Ms(2000));
  EXPECT_TRUE(keeper.IsEmpty());
  EXPECT_TRUE(IsGone(keeper.agent()));
  EXPECT_NE(keeper.StderrText().find("was silent for 600 ms and was killed"), std::string::npos)
      << keeper.StderrText();
}

TEST(Keeper, NonsenseOnTheControlSocketEndsEverything) {
  KeeperHarness keeper;
  keeper.Configure(Ms(500));
  keeper.StartWorkers(1, kPolite);
  keeper.DropGrpc();
  ASSERT_EQ(write(keeper.control(), "\xff\xff\xff\xff nonsense", 13), 13);
  EXPECT_EQ(keeper.WaitEnd(Ms(5000)), 70);
  EXPECT_TRUE(keeper.IsEmpty());
  EXPECT_NE(keeper.StderrText().find("did not end and was killed"), std::string::npos)
      << keeper.StderrText();
}

class KeeperSignal : public testing::TestWithParam<int> {};

TEST_P(KeeperSignal, EndsEverything) {
  KeeperHarness keeper;
  keeper.Configure(Ms(500));
  keeper.StartWorkers(2, kStubborn);
  kill(keeper.keeper(), GetParam());
  EXPECT_EQ(ReadUntilEnd(keeper.grpc(), Ms(2000)), "");
  keeper.EndAgent(0);
  EXPECT_EQ(keeper.WaitEnd(Ms(3000)), 128 + GetParam());
  EXPECT_TRUE(keeper.IsEmpty());
}

INSTANTIATE_TEST_SUITE_P(All, KeeperSignal, testing::Values(SIGTERM, SIGINT, SIGHUP));

// --- detached ---

void Detach(KeeperHarness& keeper) {
  pb::KeeperRequest request;
  request.mutable_detach();
  keeper.Send(request);
  // Answered in order: when this is, the keeper has read what came before.
  keeper.SpawnWorkers({keeper.Worker(9, {})});
  const auto event = keeper.NextOutcome();
  ASSERT_TRUE(event && event->has_exited());
}

// What a detached keeper must still do: run the workers, and end with its agent.
void ExpectGoesOn(KeeperHarness& keeper, const std::vector<pid_t>& workers) {
  EXPECT_FALSE(keeper.NextOutcome(Ms(300))) << "something ended or was told";
  for (const pid_t worker : workers) EXPECT_FALSE(IsGone(worker));
  keeper.Stop();
  ASSERT_TRUE(keeper.NextReaped());
  keeper.EndAgent(0);
  EXPECT_EQ(keeper.WaitEnd(Ms(3000)), 0);
  EXPECT_TRUE(keeper.IsEmpty());
}

TEST(Keeper, DetachedItOutlivesTheFrontEnd) {
  KeeperHarness keeper;
  keeper.Configure(Ms(500));
  const std::vector<pid_t> workers = keeper.StartWorkers(2, kPolite);
  Detach(keeper);
  keeper.CloseIn();
  keeper.CloseOut();
  EXPECT_EQ(ReadUntilEnd(keeper.grpc(), Ms(2000)), "") << "the agent's connection must end";
  ExpectGoesOn(keeper, workers);
}

TEST(Keeper, DetachedItOutlivesAFrontEndThatCannotBeWrittenTo) {
  KeeperHarness keeper;
  keeper.Configure(Ms(500));
  const std::vector<pid_t> workers = keeper.StartWorkers(1, kPolite);
  Detach(keeper);
  keeper.CloseOut();  // its stdin stays open
  ASSERT_EQ(write(keeper.grpc(), "x", 1), 1);
  EXPECT_EQ(ReadUntilEnd(keeper.grpc(), Ms(2000)), "") << "the agent's connection must end";
  ExpectGoesOn(keeper, workers);
}

TEST(Keeper, DetachedItOutlivesALogout) {
  KeeperHarness keeper;
  keeper.Configure(Ms(500));
  const std::vector<pid_t> workers = keeper.StartWorkers(1, kPolite);
  Detach(keeper);
  kill(keeper.keeper(), SIGHUP);
  keeper.CloseIn();
  kill(keeper.keeper(), SIGHUP);
  ExpectGoesOn(keeper, workers);
}

TEST(Keeper, DetachedItStillEndsOnSigterm) {
  KeeperHarness keeper;
  keeper.Configure(Ms(500));
  keeper.StartWorkers(2, kStubborn);
  Detach(keeper);
  keeper.CloseIn();
  kill(keeper.keeper(), SIGTERM);
  std::optional<pb::KeeperEvent> event = keeper.NextOutcome();
  ASSERT_TRUE(event && event->has_front_end_gone());
  keeper.EndAgent(0);
  EXPECT_EQ(keeper.WaitEnd(Ms(5000)), 128 + SIGTERM);
  EXPECT_TRUE(keeper.IsEmpty());
}

TEST(Keeper, DetachedItStillEndsWithADeadAgent) {
  KeeperHarness keeper;
  keeper.Configure(Ms(500));
  keeper.StartWorkers(2, kStubborn);
  Detach(keeper);
  keeper.CloseIn();
  keeper.DropGrpc();
  kill(keeper.agent(), SIGKILL);
  EXPECT_EQ(keeper.WaitEnd(Ms(5000)), 70);
  EXPECT_TRUE(keeper.IsEmpty());
}

// --- the keeper is killed ---

TEST(Keeper, WhenItIsKilledWorkersDieAndTheAgentCanSweepTheRest) {
  KeeperHarness keeper;
  keeper.Configure(Ms(10'000));
  const std::vector<pid_t> workers = keeper.StartWorkers(2, kStubborn);
  const pid_t grandchild = AwaitPidFile(keeper.dir() / "grandchild_0.pid");
  kill(keeper.keeper(), SIGKILL);
  EXPECT_EQ(keeper.WaitEnd(), 128 + SIGKILL);
  for (const pid_t worker : workers) EXPECT_TRUE(WaitFor(Ms(1000), [=] { return IsGone(worker); }));
  EXPECT_FALSE(IsGone(grandchild));
  while (keeper.Next(Ms(2000))) {
  }
  EXPECT_EQ(ReadUntilEnd(keeper.control(), Ms(1000)), "") << "the agent sees the end of file";
  EXPECT_FALSE(IsGone(keeper.agent())) << "it lives to sweep";
  const auto start = Clock::now();
  EXPECT_TRUE(
      SweepOrphans({.job_id = keeper.job_id(), .groups = workers, .session = keeper.keeper()},
                   {.grace = Ms(300), .teardown = Ms(2000)})
          .empty());
  EXPECT_LT(Clock::now() - start, Ms(1500));
  EXPECT_TRUE(keeper.IsEmpty());
}

TEST(Keeper, WhenItIsKilledTheAgentFindsByCgroupWhatWipedItsEnvironment) {
  KeeperHarness keeper;
  keeper.Configure(Ms(10'000));
  keeper.SpawnWorkers({keeper.WorkerWithChild(0, /*own_session=*/true)});
  const pid_t child = AwaitPidFile(keeper.dir() / "child");
  ASSERT_GT(child, 0);
  ASSERT_TRUE(keeper.Next());
  if (keeper.cgroup().empty()) GTEST_SKIP() << "no cgroup v2 can be made here";
  kill(keeper.keeper(), SIGKILL);
  EXPECT_EQ(keeper.WaitEnd(), 128 + SIGKILL);
  EXPECT_TRUE(SweepOrphans({.job_id = keeper.job_id(), .cgroup = keeper.cgroup()},
                           {.grace = Ms(300), .teardown = Ms(2000)})
                  .empty());
  EXPECT_TRUE(IsGone(child));
  EXPECT_FALSE(std::filesystem::exists(keeper.cgroup()));
}

}  // namespace
}  // namespace dslaunch
