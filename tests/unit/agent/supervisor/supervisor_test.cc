#include "agent/supervisor/supervisor.h"

#include <gtest/gtest.h>
#include <sys/prctl.h>
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
#include "agent/supervisor/rank_looks.h"
#include "base/os/process_tree.h"
#include "base/os/subprocess.h"
#include "tests/unit/agent/supervisor/supervisor_harness.h"

namespace dslaunch::supervisor_test {
namespace {

pb::SupervisorRequest LookAt(uint32_t local_rank, uint64_t number) {
  pb::SupervisorRequest request;
  request.mutable_look()->set_local_rank(local_rank);
  request.mutable_look()->set_number(number);
  request.mutable_look()->set_full(true);
  return request;
}

// Returns the next answer to a look, and skips other events; nullopt if none arrives.
std::optional<pb::Looked> NextLooked(SupervisorHarness& supervisor) {
  while (const std::optional<pb::SupervisorEvent> event = supervisor.Next()) {
    if (event->has_looked()) return event->looked();
  }
  return std::nullopt;
}

using Ms = milliseconds;

// Arguments of a rank that ignores SIGTERM, with a child in its own session that ignores it too.
const std::vector<std::string> kStubborn = {"--ignore-term", "--spawn-setsid-grandchild",
                                            "--grandchild-ignore-term", "--sleep-ms", "600000"};
const std::vector<std::string> kPolite = {"--sleep-ms", "600000"};

// --- Start ---

TEST(Supervisor, WritesHelloLineFirst) {
  SupervisorHarness supervisor;
  EXPECT_EQ(supervisor.hello(), "DSLAUNCH-HELLO nonce build\n");
}

TEST(Supervisor, AgentHasOwnGroupAndDumpsNoCore) {
  SupervisorHarness supervisor;
  EXPECT_EQ(getpgid(supervisor.agent()), supervisor.agent());
  EXPECT_EQ(getsid(supervisor.agent()), supervisor.supervisor());
  rlimit core = {};
  ASSERT_EQ(prlimit(supervisor.agent(), RLIMIT_CORE, nullptr, &core), 0);
  EXPECT_EQ(core.rlim_cur, 0u);
}

// The agent must not be dumpable, because ranks run as the same user, and the agent's memory
// contains keys of the job.
TEST(Supervisor, AgentIsNotReadableForItsUsersProcesses) {
  const TempDir dir;
  const std::string path = dir / "dumpable";
  SupervisorHarness supervisor(SupervisorHarness::Setup{.run_agent = [path](int, int) {
    std::ofstream(path) << prctl(PR_GET_DUMPABLE);
    return 0;
  }});
  EXPECT_TRUE(supervisor.WaitEnd());
  std::ifstream file(path);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(file), {}), "0");
}

TEST(Supervisor, WorkersAreReadableForTheirUser) {
  SupervisorHarness supervisor;
  const std::vector<pid_t> workers = supervisor.StartWorkers(1, kPolite);
  ASSERT_EQ(workers.size(), 1u);
  struct stat status {};
  const std::string path = "/proc/" + std::to_string(workers[0]) + "/environ";
  ASSERT_EQ(stat(path.c_str(), &status), 0);
  EXPECT_EQ(status.st_uid, geteuid());
}

// --- Workers ---

// Under Yama's ptrace_scope 1, the kernel allows only ancestors to read a process' memory. So the
// supervisor is the reader, and each process that it reads must descend from it.
TEST(Supervisor, ReadsOnlyItsDescendants) {
  SupervisorHarness supervisor;
  supervisor.SpawnWorkers({supervisor.WorkerWithChild(0, /*own_session=*/true)});
  std::optional<pb::Looked> looked;
  const Deadline deadline = Deadline::After(milliseconds(20'000));
  for (uint64_t number = 1; !deadline.Expired(); ++number) {
    supervisor.Send(LookAt(0, number));
    looked = NextLooked(supervisor);
    ASSERT_TRUE(looked);
    EXPECT_EQ(looked->number(), number);
    if (looked->stacks().processes_size() == 2) break;
  }
  ASSERT_EQ(looked->stacks().processes_size(), 2);
  for (const pb::ProcessStacks& process : looked->stacks().processes()) {
    EXPECT_GE(process.threads_size(), 1);
    pid_t pid = process.pid();
    while (pid > 1 && pid != supervisor.supervisor()) {
      const auto info = ReadProcess(pid);
      pid = info ? info->parent : 0;
    }
    EXPECT_EQ(pid, supervisor.supervisor());
  }
  EXPECT_NE(looked->stacks().signature(), 0u);
}

TEST(RankLooksTest, MessageKeepsBytesThatAreNotUtf8) {
  const std::string bytes = "\xff\xfe/lib";
  ProcessStacks stacks = {.command = bytes, .no_python = bytes};
  stacks.threads.push_back({.kernel = {.name = bytes, .target = bytes, .waits_in = bytes},
                            .python = {.frames = {{bytes, bytes, 1}}}});
  const std::string message = ToMessage(stacks, 100).SerializeAsString();
  pb::ProcessStacks read;
  EXPECT_TRUE(read.ParseFromString(message));
  EXPECT_EQ(read.threads(0).frames(0).file(), bytes);
}

TEST(Supervisor, AnswersLooksAtRanksThatDoNotRun) {
  SupervisorHarness supervisor;
  supervisor.Send(LookAt(3, 7));
  const std::optional<pb::Looked> looked = NextLooked(supervisor);
  ASSERT_TRUE(looked);
  EXPECT_EQ(looked->number(), 7u);
  EXPECT_EQ(looked->stacks().trouble(), "the rank does not run");
}

TEST(Supervisor, ReportsHowEachWorkerEnded) {
  SupervisorHarness supervisor;
  supervisor.SpawnWorkers({supervisor.Worker(0, {}), supervisor.Worker(1, {"--exit-code", "7"}),
                           supervisor.Worker(2, {"--kill-self", "KILL"})});
  std::map<uint32_t, pb::WorkerExited> ended;
  while (ended.size() < 3) {
    const auto event = supervisor.NextOutcome();
    ASSERT_TRUE(event && event->has_exited());
    EXPECT_FALSE(event->exited().stopping());
    ended[event->exited().local_rank()] = event->exited();
  }
  EXPECT_EQ(ended[0].exit_code(), 0);
  EXPECT_EQ(ended[0].signal(), 0);
  EXPECT_EQ(ended[1].exit_code(), 7);
  EXPECT_EQ(ended[2].signal(), SIGKILL);
}

TEST(Supervisor, ReportsFailedStartsAndStartsTheRest) {
  SupervisorHarness supervisor;
  pb::WorkerSpec missing = supervisor.Worker(0, {});
  missing.set_argv(0, supervisor.dir() / "missing");
  pb::WorkerSpec no_log = supervisor.Worker(1, {});
  no_log.set_stderr_path(supervisor.dir() / "missing/stderr.log");
  pb::WorkerSpec link = supervisor.Worker(2, {});
  ASSERT_EQ(symlink("/dev/null", (supervisor.dir() / "link").c_str()), 0);
  link.set_stdout_path(supervisor.dir() / "link");
  supervisor.SpawnWorkers({missing, no_log, link, supervisor.Worker(3, {"--exit-code", "3"})});
  // Events may arrive in any order, because starts do not wait for each other.
  std::map<uint32_t, std::pair<int, std::string>> failed;
  int num_exited = 0;
  for (int i = 0; i < 4; ++i) {
    const auto event = supervisor.NextOutcome();
    ASSERT_TRUE(event);
    if (event->has_spawn_failed()) {
      const pb::SpawnFailed& what = event->spawn_failed();
      failed[what.local_rank()] = {what.error_number(), what.step()};
    } else {
      ASSERT_TRUE(event->has_exited());
      EXPECT_EQ(event->exited().exit_code(), 3);
      ++num_exited;
    }
  }
  EXPECT_EQ(num_exited, 1);
  EXPECT_EQ(failed[0], std::pair(ENOENT, std::string("execve")));
  EXPECT_EQ(failed[1], std::pair(ENOENT, std::string("open stderr file")));
  EXPECT_EQ(failed[2], std::pair(ELOOP, std::string("open stdout file")));
}

TEST(Supervisor, WorkerGetsItsFilesFolderAndTheCallersLimits) {
  SupervisorHarness supervisor;
  rlimit core = {};
  getrlimit(RLIMIT_CORE, &core);
  supervisor.SpawnWorkers(
      {supervisor.ShellWorker(0,
                              "pwd -P; umask; ulimit -c; readlink /proc/$$/fd/0; grep SigIgn "
                              "/proc/self/status; echo x >&2")});
  const auto event = supervisor.NextOutcome();
  ASSERT_TRUE(event && event->has_exited());
  const std::string limit =
      core.rlim_cur == RLIM_INFINITY ? "unlimited" : std::to_string(core.rlim_cur / 512);
  EXPECT_EQ(
      ReadFile(supervisor.LogPath(0, "stdout")),
      supervisor.dir().path() + "\n0022\n" + limit + "\n/dev/null\nSigIgn:\t0000000000000000\n");
  EXPECT_EQ(ReadFile(supervisor.LogPath(0, "stderr")), "x\n");
  struct stat status = {};
  ASSERT_EQ(stat(supervisor.LogPath(0, "stdout").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
}

TEST(Supervisor, WorkerHasNoOtherDescriptors) {
  SupervisorHarness supervisor;
  // The script has no pipelines and redirections, because the shell would keep descriptors for
  // them.
  supervisor.SpawnWorkers(
      {supervisor.ShellWorker(0,
                              "echo $DSLAUNCH_STATUS_FD; "
                              "test -p /proc/$$/fd/$DSLAUNCH_STATUS_FD && ls /proc/$$/fd; true")});
  ASSERT_TRUE(supervisor.NextOutcome());
  std::istringstream printed(ReadFile(supervisor.LogPath(0, "stdout")));
  int status_fd = -1;
  printed >> status_fd;
  std::set<int> open;
  for (int fd = 0; printed >> fd;) open.insert(fd);
  EXPECT_EQ(open, (std::set<int>{0, 1, 2, status_fd}));
}

TEST(Supervisor, ForwardsStatusLinesBeforeTheExit) {
  SupervisorHarness supervisor;
  supervisor.SpawnWorkers({supervisor.Worker(0, {"--status-steps", "3"})});
  std::string lines;
  while (true) {
    const auto event = supervisor.Next();
    ASSERT_TRUE(event);
    if (event->has_status()) lines += event->status().data();
    if (event->has_exited()) break;
  }
  EXPECT_EQ(std::ranges::count(lines, '\n'), 4);
  EXPECT_EQ(lines.substr(0, 18), "{\"event\":\"ready\"}\n");
  EXPECT_NE(lines.find("\"step\":3,"), std::string::npos);
}

TEST(Supervisor, FloodOfStatusLinesDoesNotBlockWorkers) {
  SupervisorHarness supervisor;
  const std::vector<pid_t> pids =
      supervisor.StartWorkers(1, {"--status-steps", "400000"});  // about 30 MB
  // The test does not read the control socket in the meantime.
  ASSERT_TRUE(WaitFor(Ms(60'000), [&] { return IsGone(pids[0]); }));
  size_t status_bytes = 0;
  while (true) {
    const auto event = supervisor.Next();
    ASSERT_TRUE(event) << "the exit was lost";
    status_bytes += event->status().data().size();
    if (event->has_exited()) break;
  }
  EXPECT_GT(status_bytes, 0u);
  EXPECT_LT(status_bytes, size_t{4} << 20);
}

TEST(Supervisor, ReportsStoppedAndContinuedWorker) {
  SupervisorHarness supervisor;
  const std::vector<pid_t> pids = supervisor.StartWorkers(1, kPolite);
  kill(pids[0], SIGSTOP);
  auto event = supervisor.NextOutcome(Ms(1000));
  ASSERT_TRUE(event && event->has_stopped());
  EXPECT_EQ(event->stopped().signal(), SIGSTOP);
  kill(pids[0], SIGCONT);
  event = supervisor.NextOutcome(Ms(1000));
  ASSERT_TRUE(event && event->has_stopped());
  EXPECT_EQ(event->stopped().signal(), 0);
}

TEST(Supervisor, ForwardsASignalToTheWorkers) {
  SupervisorHarness supervisor;
  supervisor.StartWorkers(2, kPolite);
  pb::SupervisorRequest request;
  request.mutable_signal()->set_signal(SIGUSR1);
  supervisor.Send(request);
  for (int i = 0; i < 2; ++i) {
    const auto event = supervisor.NextOutcome();
    ASSERT_TRUE(event && event->has_exited());
    EXPECT_EQ(event->exited().signal(), SIGUSR1);
    EXPECT_FALSE(event->exited().stopping());
  }
}

TEST(Supervisor, RejectsLocalRankThatAlreadyRuns) {
  SupervisorHarness supervisor;
  supervisor.StartWorkers(1, kPolite);
  supervisor.SpawnWorkers({supervisor.Worker(0, {})});
  const auto event = supervisor.NextOutcome();
  ASSERT_TRUE(event && event->has_spawn_failed());
  EXPECT_EQ(event->spawn_failed().error_number(), EEXIST);
  EXPECT_EQ(PidsOfJob(supervisor.job_id()).size(), 1u);
}

// --- StopWorkers ---

TEST(Supervisor, StopEndsWorkersThatHandleSigtermAtOnce) {
  SupervisorHarness supervisor;
  supervisor.Configure(Ms(10'000));
  supervisor.StartWorkers(2, kPolite);
  const auto start = Clock::now();
  supervisor.Stop();
  for (int i = 0; i < 2; ++i) {
    const auto event = supervisor.NextOutcome();
    ASSERT_TRUE(event && event->has_exited());
    EXPECT_EQ(event->exited().signal(), SIGTERM);
    EXPECT_TRUE(event->exited().stopping());
  }
  const auto event = supervisor.NextOutcome();
  ASSERT_TRUE(event && event->has_all_reaped());
  EXPECT_EQ(event->all_reaped().left_size(), 0);
  EXPECT_LT(Clock::now() - start, Ms(5'000));
}

TEST(Supervisor, StopKillsProcessesThatIgnoreSigterm) {
  SupervisorHarness supervisor;
  supervisor.Configure(Ms(700));
  supervisor.StartWorkers(2, kStubborn);
  ASSERT_EQ(PidsOfJob(supervisor.job_id()).size(), 4u);
  const auto start = Clock::now();
  supervisor.Stop();
  const auto reaped = supervisor.NextReaped();
  ASSERT_TRUE(reaped);
  const auto took = Clock::now() - start;
  EXPECT_TRUE(supervisor.IsEmpty());
  EXPECT_EQ(reaped->left_size(), 0);
  EXPECT_GE(took, Ms(700)) << "the grace was cut short";
  EXPECT_LT(took, Ms(2700));
}

// The ranks' daemon must get time to clean up: like PyTorch's torch_shm_manager, it removes its
// files after the last rank's exit, unless a signal ends it earlier.
TEST(Supervisor, StopLeavesDaemonOfRanksTimeToCleanUp) {
  for (const char* rank : {"exec sleep 600", "trap '' TERM; while :; do sleep 0.05; done"}) {
    SupervisorHarness supervisor;
    supervisor.Configure(Ms(500));
    const std::string kept = supervisor.dir() / "kept";
    supervisor.SpawnWorkers({supervisor.ShellWorker(
        0,
        "touch kept; mkfifo served; exec 9<>served; "
        "setsid sh -c 'exec 9<&-; : >daemon; read line <served; rm kept' & "
        "while [ ! -e daemon ]; do sleep 0.01; done; exec 8>served 9<&-; : >up; " +
            std::string(rank))});
    ASSERT_TRUE(
        WaitFor(Ms(5'000), [&] { return std::filesystem::exists(supervisor.dir() / "up"); }));
    supervisor.Stop();
    ASSERT_TRUE(supervisor.NextReaped());
    EXPECT_FALSE(std::filesystem::exists(kept)) << rank;
  }
}

TEST(Supervisor, StopWithKillNowSkipsTheGrace) {
  SupervisorHarness supervisor;
  supervisor.Configure(Ms(60'000));
  supervisor.StartWorkers(1, kStubborn);
  supervisor.Stop();
  EXPECT_FALSE(supervisor.NextOutcome(Ms(200))) << "it ignores SIGTERM";
  supervisor.Stop(true);
  auto event = supervisor.NextOutcome(Ms(3000));
  ASSERT_TRUE(event && event->has_exited());
  EXPECT_EQ(event->exited().signal(), SIGKILL);
  event = supervisor.NextOutcome(Ms(3000));
  ASSERT_TRUE(event && event->has_all_reaped());
  EXPECT_TRUE(supervisor.IsEmpty());
}

TEST(Supervisor, StopContinuesAStoppedWorker) {
  SupervisorHarness supervisor;
  supervisor.Configure(Ms(60'000));
  const std::vector<pid_t> pids = supervisor.StartWorkers(1, kPolite);
  kill(pids[0], SIGSTOP);
  ASSERT_TRUE(supervisor.NextOutcome());
  supervisor.Stop();
  const auto event = supervisor.NextOutcome(Ms(3000));
  ASSERT_TRUE(event && event->has_exited());
  EXPECT_EQ(event->exited().signal(), SIGTERM);
}

TEST(Supervisor, StopReachesChildrenOfAnExitedWorker) {
  SupervisorHarness supervisor;
  supervisor.Configure(Ms(10'000));
  supervisor.SpawnWorkers({supervisor.Worker(0, {"--spawn-setsid-grandchild"})});
  auto event = supervisor.NextOutcome();
  ASSERT_TRUE(event && event->has_exited());
  ASSERT_EQ(PidsOfJob(supervisor.job_id()).size(), 1u);
  supervisor.Stop();
  event = supervisor.NextOutcome(Ms(3000));
  ASSERT_TRUE(event && event->has_all_reaped());
  EXPECT_TRUE(supervisor.IsEmpty());
}

TEST(Supervisor, StopEndsProgramThatKeepsForkingIntoSessions) {
  SupervisorHarness supervisor;
  supervisor.Configure(Ms(100));
  supervisor.SpawnWorkers(
      {supervisor.ShellWorker(0,
                              "trap '' TERM; touch started; while :; do setsid sh -c \"trap "
                              "'' TERM; sleep 1000\" & sleep 0.01; done")});
  ASSERT_TRUE(WaitFor(Ms(10'000), [&] { return PidsOfJob(supervisor.job_id()).size() > 10; }));
  supervisor.Stop();
  const auto reaped = supervisor.NextReaped();
  ASSERT_TRUE(reaped);
  EXPECT_EQ(reaped->left_size(), 0);
  EXPECT_TRUE(supervisor.IsEmpty());
}

// In each round, a process may leave the worker's group at the moment when the group is signalled.
TEST(Supervisor, StopReachesProcessesAboutToLeaveTheirGroup) {
  for (int round = 0; round < 5; ++round) {
    SupervisorHarness supervisor;
    supervisor.Configure(Ms(20'000));
    supervisor.SpawnWorkers({supervisor.ShellWorker(
        0, "trap 'exit 0' TERM; while :; do setsid sleep 1000 & sleep 0.002; done")});
    ASSERT_TRUE(WaitFor(Ms(10'000), [&] { return PidsOfJob(supervisor.job_id()).size() > 8; }));
    const Clock::time_point begin = Clock::now();
    supervisor.Stop();
    ASSERT_TRUE(supervisor.NextReaped());
    EXPECT_LT(Clock::now() - begin, Ms(10'000)) << "round " << round;
    EXPECT_TRUE(supervisor.IsEmpty());
  }
}

TEST(Supervisor, StopOfAnEmptyNodeAnswersAtOnce) {
  SupervisorHarness supervisor;
  supervisor.Stop();
  const auto event = supervisor.NextOutcome(Ms(1000));
  ASSERT_TRUE(event && event->has_all_reaped());
}

TEST(Supervisor, StartsNothingDuringStopButAgainAfterwards) {
  SupervisorHarness supervisor;
  supervisor.Configure(Ms(500));
  supervisor.StartWorkers(1, kStubborn);
  supervisor.Stop();
  supervisor.SpawnWorkers({supervisor.Worker(5, {})});
  auto event = supervisor.NextOutcome();
  ASSERT_TRUE(event && event->has_spawn_failed());
  EXPECT_EQ(event->spawn_failed().error_number(), ECANCELED);
  ASSERT_TRUE(supervisor.NextReaped());
  supervisor.SpawnWorkers({supervisor.Worker(0, {"--exit-code", "9"})});
  event = supervisor.NextOutcome();
  ASSERT_TRUE(event && event->has_exited());
  EXPECT_EQ(event->exited().exit_code(), 9);
  EXPECT_FALSE(event->exited().stopping());
}

// The worker's stdout is a FIFO without a reader, so the worker never executes its program.
TEST(Supervisor, StopEndsWorkersThatAreStillStarting) {
  SupervisorHarness supervisor;
  supervisor.Configure(Ms(200));
  std::vector<pb::WorkerSpec> workers;
  for (uint32_t rank = 0; rank < 2; ++rank) {
    workers.push_back(supervisor.Worker(rank, {"--sleep-ms", "60000"}));
    workers.back().set_stdout_path(supervisor.dir() / ("fifo" + std::to_string(rank)));
    ASSERT_EQ(mkfifo(workers.back().stdout_path().c_str(), 0600), 0);
  }
  supervisor.SpawnWorkers(workers);
  supervisor.Stop();
  const auto reaped = supervisor.NextReaped();
  ASSERT_TRUE(reaped);
  EXPECT_EQ(reaped->left_size(), 0);
}

// The child ignores SIGTERM and can be found only through its cgroup and its parent.
TEST(Supervisor, StopEndsChildWithClearedEnvironment) {
  SupervisorHarness supervisor;
  supervisor.Configure(Ms(200));
  supervisor.SpawnWorkers({supervisor.WorkerWithChild(0, /*own_session=*/true)});
  const pid_t child = AwaitPidFile(supervisor.dir() / "child");
  ASSERT_GT(child, 0);
  supervisor.Stop();
  ASSERT_TRUE(supervisor.NextReaped());
  EXPECT_TRUE(IsGone(child));
}

TEST(Supervisor, StopWaitsUntilTheWorkersCgroupIsEmptyAndRemovesIt) {
  SupervisorHarness supervisor;
  supervisor.Configure(Ms(200));
  supervisor.StartWorkers(1, kPolite);
  ASSERT_TRUE(supervisor.Next());
  if (supervisor.cgroup().empty()) GTEST_SKIP() << "no cgroup v2 can be made here";
  // The process is not a descendant of the supervisor.
  const SpawnResult stranger = Spawn({.executable = DSLAUNCH_FAKE_WORKER,
                                      .argv = {"fake_worker", "--ignore-term", "--sleep-ms",
                                               "60000", "--pid-file", supervisor.dir().path()},
                                      .env = {"RANK=7"}});
  ASSERT_EQ(AwaitPidFile(supervisor.dir() / "rank_7.pid"), stranger.pid) << "deaf by now";
  std::ofstream(supervisor.cgroup() + "/cgroup.procs") << stranger.pid;
  supervisor.Stop();
  const auto reaped = supervisor.NextReaped();
  ASSERT_TRUE(reaped);
  EXPECT_EQ(reaped->left_size(), 0);
  int status = 0;
  EXPECT_EQ(waitpid(stranger.pid, &status, WNOHANG), stranger.pid);
  EXPECT_EQ(WTERMSIG(status), SIGKILL);
  EXPECT_FALSE(std::filesystem::exists(supervisor.cgroup()));
}

// Freezes a process. Like a process that waits endlessly for a disk, a frozen process does not even
// die from SIGKILL. Needs root and the freezer of cgroup v1.
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

TEST(Supervisor, ReportsUnkillableProcessAndEnds) {
  Freezer freezer;
  SupervisorHarness supervisor;
  supervisor.Configure(Ms(100), Ms(60'000), /*teardown=*/Ms(300));
  const std::vector<pid_t> workers = supervisor.StartWorkers(2, kPolite);
  if (!freezer.Freeze(workers[1])) GTEST_SKIP() << "no freezer of cgroup v1 here";
  const auto start = Clock::now();
  supervisor.Stop();
  const auto reaped = supervisor.NextReaped();
  ASSERT_TRUE(reaped);
  EXPECT_LT(Clock::now() - start, Ms(3000));
  ASSERT_EQ(reaped->left_size(), 1);
  EXPECT_EQ(reaped->left(0).pid(), workers[1]);
  EXPECT_EQ(reaped->left(0).state(), "D");
  EXPECT_EQ(reaped->left(0).command(), "fake_worker");
  EXPECT_NE(supervisor.StderrText().find("these processes did not end after SIGKILL: " +
                                         std::to_string(workers[1]) + " (fake_worker, D state"),
            std::string::npos)
      << supervisor.StderrText();
  supervisor.EndAgent(0);
  EXPECT_TRUE(supervisor.WaitEnd(Ms(5000)));
  EXPECT_FALSE(IsGone(workers[1]));
  freezer.Thaw();
  EXPECT_TRUE(WaitFor(Ms(5000), [&] { return IsGone(workers[1]); }));
  RecordProperty("waits_in", reaped->left(0).waits_in());
  if (!supervisor.cgroup().empty()) {
    EXPECT_TRUE(WaitFor(Ms(2000), [&] { return RemoveCgroup(supervisor.cgroup()); }));
  }
}

// --- Attempts: the same supervisor starts workers again ---

TEST(Supervisor, EachAttemptHasItsOwnExitsAndStatusLines) {
  SupervisorHarness supervisor;
  supervisor.Configure(Ms(5000));
  for (int attempt = 1; attempt <= 3; ++attempt) {
    SCOPED_TRACE("attempt " + std::to_string(attempt));
    // Rank 0 fails. Rank 1 and its children are stopped, in every second attempt by SIGKILL.
    supervisor.SpawnWorkers(
        {supervisor.Worker(0, {"--status-steps", "2", "--exit-code", "7"}),
         supervisor.Worker(
             1, {"--status-steps", "1", "--spawn-setsid-grandchild", "--sleep-ms", "600000"})});
    std::string lines;
    std::optional<pb::SupervisorEvent> event;
    std::set<int> spawned;
    std::string lines_of_rank_1;
    bool failed = false;
    while (!failed || lines_of_rank_1.find("\"step\":1,") == std::string::npos) {
      event = supervisor.Next();
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
    supervisor.Stop(/*kill_now=*/attempt % 2 == 0);
    event = supervisor.NextOutcome();
    ASSERT_TRUE(event && event->has_exited());
    EXPECT_EQ(event->exited().local_rank(), 1u);
    EXPECT_EQ(event->exited().signal(), attempt % 2 == 0 ? SIGKILL : SIGTERM);
    EXPECT_TRUE(event->exited().stopping());
    EXPECT_FALSE(event->exited().out_of_memory());
    event = supervisor.NextOutcome();
    ASSERT_TRUE(event && event->has_all_reaped());
    EXPECT_EQ(event->all_reaped().left_size(), 0);
    EXPECT_TRUE(supervisor.IsEmpty());
  }
  supervisor.EndAgent(0);
  EXPECT_EQ(supervisor.WaitEnd(), 0);
}

// Workers requested before the stop are still started, and then ended. Each event must be reported
// exactly once.
TEST(Supervisor, StopRightAfterSpawnLeavesNoProcess) {
  SupervisorHarness supervisor;
  supervisor.Configure(Ms(2000));
  for (int attempt = 1; attempt <= 2; ++attempt) {
    std::vector<pb::WorkerSpec> specs;
    for (uint32_t rank = 0; rank < 8; ++rank) specs.push_back(supervisor.Worker(rank, kPolite));
    supervisor.SpawnWorkers(specs);
    supervisor.Stop();
    std::set<uint32_t> spawned, ended;
    while (true) {
      const auto event = supervisor.Next();
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
    EXPECT_TRUE(supervisor.IsEmpty());
  }
}

// --- Reasons to end ---

TEST(Supervisor, EndsPromptlyWithItsAgent) {
  SupervisorHarness supervisor;
  supervisor.Configure(Ms(10'000));
  ASSERT_EQ(write(supervisor.grpc(), "last words", 10), 10);
  const auto start = Clock::now();
  supervisor.EndAgent(0);
  EXPECT_EQ(supervisor.WaitEnd(), 0);
  EXPECT_LT(Clock::now() - start, Ms(5'000));
  EXPECT_EQ(ReadUntilEnd(supervisor.out(), Ms(1000)), "last words");
  EXPECT_EQ(supervisor.StderrText(), "");
}

TEST(Supervisor, ReportsExitCodeOfFailedAgent) {
  SupervisorHarness supervisor;
  const pid_t agent = supervisor.agent();
  supervisor.EndAgent(3);
  EXPECT_EQ(supervisor.WaitEnd(), 70);
  EXPECT_NE(supervisor.StderrText().find("agent (pid " + std::to_string(agent) +
                                         ") ended with exit code 3; "),
            std::string::npos)
      << supervisor.StderrText();
}

TEST(Supervisor, FrontEndLossWithoutWorkersEndsAtOnce) {
  SupervisorHarness supervisor;
  supervisor.Configure(Ms(10'000));
  supervisor.CloseIn();
  EXPECT_EQ(ReadUntilEnd(supervisor.grpc(), Ms(2000)), "");  // the agent reads end of file
  const auto event = supervisor.NextOutcome();
  ASSERT_TRUE(event && event->has_front_end_gone());
  const auto start = Clock::now();
  supervisor.EndAgent(0);
  EXPECT_EQ(supervisor.WaitEnd(), 0);
  EXPECT_LT(Clock::now() - start, Ms(5'000));
}

TEST(Supervisor, FrontEndLossEndsAllEvenIfAgentDoesNothing) {
  SupervisorHarness supervisor;
  supervisor.Configure(Ms(500));
  supervisor.StartWorkers(2, kStubborn);
  supervisor.DropGrpc();
  const auto start = Clock::now();
  supervisor.CloseIn();
  EXPECT_EQ(supervisor.WaitEnd(), 0);
  const auto took = Clock::now() - start;
  EXPECT_TRUE(supervisor.IsEmpty());
  EXPECT_TRUE(IsGone(supervisor.agent()));
  EXPECT_GE(took, Ms(500));
  // The limit is the grace period, 1 s for the ranks' children in other sessions, 2 s for the
  // agent, and 1 s of tolerance.
  EXPECT_LT(took, Ms(500 + 1000 + 2000 + 1000));
}

TEST(Supervisor, FailedWriteToFrontEndEndsAll) {
  SupervisorHarness supervisor;
  supervisor.Configure(Ms(500));
  supervisor.StartWorkers(1, kPolite);
  supervisor.CloseOut();  // stdin stays open
  ASSERT_EQ(write(supervisor.grpc(), "x", 1), 1);
  supervisor.DropGrpc();
  EXPECT_EQ(supervisor.WaitEnd(Ms(4000)), 0);
  EXPECT_TRUE(supervisor.IsEmpty());
}

pb::SupervisorRequest Alive(std::optional<uint32_t> lease_left_ms = {}) {
  pb::SupervisorRequest alive;
  alive.mutable_alive();
  if (lease_left_ms) alive.mutable_alive()->set_lease_left_ms(*lease_left_ms);
  return alive;
}

TEST(Supervisor, ExpiredLeaseEndsWorkersWithoutTheAgent) {
  SupervisorHarness supervisor;
  supervisor.Configure(Ms(200));
  const std::vector<pid_t> pids = supervisor.StartWorkers(2, kStubborn);
  supervisor.Send(Alive(60'000));
  supervisor.Send(Alive(300));
  const auto event = supervisor.NextOutcome();
  ASSERT_TRUE(event && event->has_front_end_gone());
  EXPECT_TRUE(WaitFor(Ms(5000), [&] { return IsGone(pids[0]) && IsGone(pids[1]); }));
  supervisor.SpawnWorkers({supervisor.Worker(0, {})});
  std::optional<pb::SupervisorEvent> refused;
  do refused = supervisor.NextOutcome();
  while (refused && refused->has_exited());
  EXPECT_TRUE(refused && refused->has_spawn_failed());
  // The agent keeps running, because other nodes may still need it.
  supervisor.Stop();
  EXPECT_TRUE(supervisor.NextReaped());
  EXPECT_FALSE(IsGone(supervisor.agent()));
  supervisor.EndAgent(0);
  EXPECT_EQ(supervisor.WaitEnd(), 0);
}

TEST(Supervisor, GrantsTimeAfterAStallButNoNewLease) {
  SupervisorHarness supervisor;
  supervisor.Configure(Ms(200));
  supervisor.Send(Alive(1'000));
  supervisor.SpawnWorkers({supervisor.Worker(0, kPolite)});
  std::optional<pb::SupervisorEvent> answer;  // shows that the supervisor has read the lease
  do answer = supervisor.Next();
  while (answer && !answer->has_spawned());
  ASSERT_TRUE(answer);
  kill(supervisor.supervisor(), SIGSTOP);
  WaitFor(Ms(2'000), [] { return false; });
  kill(supervisor.supervisor(), SIGCONT);
  EXPECT_FALSE(supervisor.NextOutcome(Ms(1'000)));
  const auto event = supervisor.NextOutcome();
  ASSERT_TRUE(event && event->has_front_end_gone());
  EXPECT_TRUE(WaitFor(Ms(5000), [&] { return IsGone(answer->spawned().pid()); }));
}

TEST(Supervisor, RenewedOrUnsetLeaseEndsNothing) {
  SupervisorHarness supervisor;
  supervisor.Configure(Ms(200));
  supervisor.StartWorkers(1, kPolite);
  supervisor.Send(Alive(1'000));
  supervisor.Send(Alive(60'000));
  supervisor.Send(Alive(1'000));
  supervisor.Send(Alive());
  pb::SupervisorRequest detach;
  detach.mutable_detach();
  supervisor.Send(detach);
  supervisor.Send(Alive(1));  // was in transit when the job was detached
  EXPECT_FALSE(supervisor.NextOutcome(Ms(1'500)));
}

TEST(Supervisor, DeadAgentEndsEverything) {
  SupervisorHarness supervisor;
  supervisor.Configure(Ms(500));
  supervisor.StartWorkers(2, kStubborn);
  supervisor.DropGrpc();
  kill(supervisor.agent(), SIGKILL);
  EXPECT_EQ(supervisor.WaitEnd(Ms(3000)), 70);
  EXPECT_TRUE(supervisor.IsEmpty());
  char host[256] = {};
  gethostname(host, sizeof host - 1);
  EXPECT_EQ(supervisor.StderrText(), "dslaunch-agent on " + std::string(host) + ": agent (pid " +
                                         std::to_string(supervisor.agent()) +
                                         ") was killed by SIGKILL; its workers were stopped\n");
}

TEST(Supervisor, SilentAgentEndsEverythingAndItself) {
  SupervisorHarness supervisor;
  supervisor.Configure(Ms(500), Ms(600));
  supervisor.StartWorkers(1, kPolite);
  supervisor.DropGrpc();
  kill(supervisor.agent(), SIGSTOP);
  const auto start = Clock::now();
  // Heartbeats postpone the end, even if the agent itself is stopped.
  while (Clock::now() - start < Ms(1500)) {
    supervisor.Send(Alive());
    WaitFor(Ms(100), [] { return false; });
  }
  EXPECT_FALSE(supervisor.IsEmpty());
  EXPECT_EQ(supervisor.WaitEnd(Ms(4000)), 70);
  EXPECT_GT(Clock::now() - start, Ms(2000));
  EXPECT_TRUE(supervisor.IsEmpty());
  EXPECT_TRUE(IsGone(supervisor.agent()));
  EXPECT_NE(supervisor.StderrText().find("was silent for 600 ms and was killed"), std::string::npos)
      << supervisor.StderrText();
}

TEST(Supervisor, InvalidControlMessageEndsEverything) {
  SupervisorHarness supervisor;
  supervisor.Configure(Ms(500));
  supervisor.StartWorkers(1, kPolite);
  supervisor.DropGrpc();
  ASSERT_EQ(write(supervisor.control(), "\xff\xff\xff\xff nonsense", 13), 13);
  EXPECT_EQ(supervisor.WaitEnd(Ms(5000)), 70);
  EXPECT_TRUE(supervisor.IsEmpty());
  EXPECT_NE(supervisor.StderrText().find("did not end and was killed"), std::string::npos)
      << supervisor.StderrText();
}

class SupervisorSignal : public testing::TestWithParam<int> {};

TEST_P(SupervisorSignal, EndsAllProcessesWithItsCode) {
  SupervisorHarness supervisor;
  supervisor.Configure(Ms(500));
  supervisor.StartWorkers(2, kStubborn);
  kill(supervisor.supervisor(), GetParam());
  EXPECT_EQ(ReadUntilEnd(supervisor.grpc(), Ms(2000)), "");
  supervisor.EndAgent(0);
  EXPECT_EQ(supervisor.WaitEnd(Ms(3000)), 128 + GetParam());
  EXPECT_TRUE(supervisor.IsEmpty());
}

INSTANTIATE_TEST_SUITE_P(All, SupervisorSignal, testing::Values(SIGTERM, SIGINT, SIGHUP));

// --- Detached ---

void Detach(SupervisorHarness& supervisor) {
  pb::SupervisorRequest request;
  request.mutable_detach();
  supervisor.Send(request);
  // Requests are answered in order, so this answer shows that the supervisor has read the request
  // to detach.
  supervisor.SpawnWorkers({supervisor.Worker(9, {})});
  const auto event = supervisor.NextOutcome();
  ASSERT_TRUE(event && event->has_exited());
}

// Checks that a detached supervisor keeps the workers running and ends with its agent.
void ExpectContinues(SupervisorHarness& supervisor, const std::vector<pid_t>& workers) {
  EXPECT_FALSE(supervisor.NextOutcome(Ms(300))) << "something ended or was told";
  for (const pid_t worker : workers) EXPECT_FALSE(IsGone(worker));
  supervisor.Stop();
  ASSERT_TRUE(supervisor.NextReaped());
  supervisor.EndAgent(0);
  EXPECT_EQ(supervisor.WaitEnd(Ms(3000)), 0);
  EXPECT_TRUE(supervisor.IsEmpty());
}

TEST(Supervisor, DetachedOutlivesTheFrontEnd) {
  SupervisorHarness supervisor;
  supervisor.Configure(Ms(500));
  const std::vector<pid_t> workers = supervisor.StartWorkers(2, kPolite);
  Detach(supervisor);
  supervisor.CloseIn();
  supervisor.CloseOut();
  EXPECT_EQ(ReadUntilEnd(supervisor.grpc(), Ms(2000)), "") << "the agent's connection must end";
  ExpectContinues(supervisor, workers);
}

TEST(Supervisor, DetachedOutlivesFailedWriteToFrontEnd) {
  SupervisorHarness supervisor;
  supervisor.Configure(Ms(500));
  const std::vector<pid_t> workers = supervisor.StartWorkers(1, kPolite);
  Detach(supervisor);
  supervisor.CloseOut();  // stdin stays open
  ASSERT_EQ(write(supervisor.grpc(), "x", 1), 1);
  EXPECT_EQ(ReadUntilEnd(supervisor.grpc(), Ms(2000)), "") << "the agent's connection must end";
  ExpectContinues(supervisor, workers);
}

TEST(Supervisor, DetachedOutlivesALogout) {
  SupervisorHarness supervisor;
  supervisor.Configure(Ms(500));
  const std::vector<pid_t> workers = supervisor.StartWorkers(1, kPolite);
  Detach(supervisor);
  kill(supervisor.supervisor(), SIGHUP);
  supervisor.CloseIn();
  kill(supervisor.supervisor(), SIGHUP);
  ExpectContinues(supervisor, workers);
}

TEST(Supervisor, DetachedEndsOnSigterm) {
  SupervisorHarness supervisor;
  supervisor.Configure(Ms(500));
  supervisor.StartWorkers(2, kStubborn);
  Detach(supervisor);
  supervisor.CloseIn();
  kill(supervisor.supervisor(), SIGTERM);
  std::optional<pb::SupervisorEvent> event = supervisor.NextOutcome();
  ASSERT_TRUE(event && event->has_front_end_gone());
  supervisor.EndAgent(0);
  EXPECT_EQ(supervisor.WaitEnd(Ms(5000)), 128 + SIGTERM);
  EXPECT_TRUE(supervisor.IsEmpty());
}

TEST(Supervisor, DetachedEndsWithADeadAgent) {
  SupervisorHarness supervisor;
  supervisor.Configure(Ms(500));
  supervisor.StartWorkers(2, kStubborn);
  Detach(supervisor);
  supervisor.CloseIn();
  supervisor.DropGrpc();
  kill(supervisor.agent(), SIGKILL);
  EXPECT_EQ(supervisor.WaitEnd(Ms(5000)), 70);
  EXPECT_TRUE(supervisor.IsEmpty());
}

// --- The supervisor is killed ---

TEST(Supervisor, DeathEndsWorkersAndAgentSweepsTheRest) {
  SupervisorHarness supervisor;
  supervisor.Configure(Ms(10'000));
  const std::vector<pid_t> workers = supervisor.StartWorkers(2, kStubborn);
  const pid_t grandchild = AwaitPidFile(supervisor.dir() / "grandchild_0.pid");
  kill(supervisor.supervisor(), SIGKILL);
  EXPECT_EQ(supervisor.WaitEnd(), 128 + SIGKILL);
  for (const pid_t worker : workers) EXPECT_TRUE(WaitFor(Ms(1000), [=] { return IsGone(worker); }));
  EXPECT_FALSE(IsGone(grandchild));
  while (supervisor.Next(Ms(2000))) {
  }
  EXPECT_EQ(ReadUntilEnd(supervisor.control(), Ms(1000)), "") << "the agent sees the end of file";
  EXPECT_FALSE(IsGone(supervisor.agent())) << "it lives to sweep";
  const auto start = Clock::now();
  EXPECT_TRUE(
      SweepOrphans(
          {.job_id = supervisor.job_id(), .groups = workers, .session = supervisor.supervisor()},
          {.grace = Ms(300), .teardown = Ms(20'000)})
          .empty());
  EXPECT_LT(Clock::now() - start, Ms(10'000));
  EXPECT_TRUE(supervisor.IsEmpty());
}

TEST(Supervisor, AgentFindsOrphanByItsCgroup) {
  SupervisorHarness supervisor;
  supervisor.Configure(Ms(10'000));
  supervisor.SpawnWorkers({supervisor.WorkerWithChild(0, /*own_session=*/true)});
  const pid_t child = AwaitPidFile(supervisor.dir() / "child");
  ASSERT_GT(child, 0);
  ASSERT_TRUE(supervisor.Next());
  if (supervisor.cgroup().empty()) GTEST_SKIP() << "no cgroup v2 can be made here";
  kill(supervisor.supervisor(), SIGKILL);
  EXPECT_EQ(supervisor.WaitEnd(), 128 + SIGKILL);
  EXPECT_TRUE(SweepOrphans({.job_id = supervisor.job_id(), .cgroup = supervisor.cgroup()},
                           {.grace = Ms(300), .teardown = Ms(2000)})
                  .empty());
  EXPECT_TRUE(IsGone(child));
  EXPECT_FALSE(std::filesystem::exists(supervisor.cgroup()));
}

}  // namespace
}  // namespace dslaunch::supervisor_test
