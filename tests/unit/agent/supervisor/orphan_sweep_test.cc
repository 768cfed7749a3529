#include "agent/supervisor/orphan_sweep.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>

#include "base/os/subprocess.h"
#include "tests/support/processes.h"

namespace dslaunch::orphan_sweep_test {
namespace {

constexpr char kFakeWorker[] = DSLAUNCH_FAKE_WORKER;

pid_t StartSleeper(const std::string& job_id, std::vector<std::string> more = {}) {
  const TempDir dir;
  SpawnSpec spec = {.executable = kFakeWorker,
                    .argv = {"fake_worker", "--sleep-ms", "60000", "--pid-file", dir.path()},
                    .own_group = true};
  spec.argv.insert(spec.argv.end(), more.begin(), more.end());
  if (!job_id.empty()) spec.env = {"DSLAUNCH_JOB_ID=" + job_id};
  const pid_t pid = Spawn(spec).pid;
  EXPECT_EQ(AwaitPidFile(dir / "rank_0.pid"), pid);
  return pid;
}

TEST(OrphanSweep, ReturnsAtOnceWithoutProcesses) {
  const auto start = Clock::now();
  EXPECT_TRUE(SweepOrphans({.job_id = NewJobId()}, {}).empty());
  EXPECT_LT(Clock::now() - start, milliseconds(1000));
}

TEST(OrphanSweep, EndsOnlyTheJobsProcesses) {
  const std::string job_id = NewJobId();
  const pid_t ours = StartSleeper(job_id);
  const pid_t others = StartSleeper(job_id + "-other");
  const auto start = Clock::now();
  EXPECT_TRUE(SweepOrphans({.job_id = job_id},
                           {.grace = milliseconds(20'000), .teardown = milliseconds(2000)})
                  .empty());
  EXPECT_LT(Clock::now() - start, milliseconds(10'000)) << "it heeds SIGTERM";
  int status = 0;
  EXPECT_EQ(waitpid(ours, &status, 0), ours);
  EXPECT_EQ(WTERMSIG(status), SIGTERM);
  EXPECT_FALSE(IsGone(others));
  kill(others, SIGKILL);
  EXPECT_EQ(waitpid(others, nullptr, 0), others);
}

TEST(OrphanSweep, SparesRanksOfAnotherLivingSupervisor) {
  const std::string job_id = NewJobId();
  std::array<int, 2> pipe_ends;
  ASSERT_EQ(pipe(pipe_ends.data()), 0);
  const pid_t supervisor = fork();
  ASSERT_GE(supervisor, 0);
  if (supervisor == 0) {
    setsid();
    const pid_t rank = StartSleeper(job_id);
    if (write(pipe_ends[1], &rank, sizeof rank) == sizeof rank) pause();
    _exit(1);
  }
  pid_t rank = 0;
  ASSERT_EQ(read(pipe_ends[0], &rank, sizeof rank), static_cast<ssize_t>(sizeof rank));
  const GracefulKillOptions options = {.grace = milliseconds(5000), .teardown = milliseconds(2000)};
  EXPECT_TRUE(SweepOrphans({.job_id = job_id}, options).empty());
  EXPECT_FALSE(IsGone(rank));
  kill(supervisor, SIGKILL);
  EXPECT_EQ(waitpid(supervisor, nullptr, 0), supervisor);
  EXPECT_TRUE(SweepOrphans({.job_id = job_id}, options).empty());
  EXPECT_TRUE(IsGone(rank));
  for (const int end : pipe_ends) close(end);
}

TEST(OrphanSweep, KillsProcessThatIgnoresSigtermAfterGrace) {
  const std::string job_id = NewJobId();
  const pid_t ours = StartSleeper(job_id, {"--ignore-term"});
  const auto start = Clock::now();
  EXPECT_TRUE(SweepOrphans({.job_id = job_id},
                           {.grace = milliseconds(300), .teardown = milliseconds(20'000)})
                  .empty());
  const auto took = Clock::now() - start;
  EXPECT_GE(took, milliseconds(300));
  EXPECT_LT(took, milliseconds(10'000));
  int status = 0;
  EXPECT_EQ(waitpid(ours, &status, 0), ours);
  EXPECT_EQ(WTERMSIG(status), SIGKILL);
}

TEST(OrphanSweep, EndsAProcessApartSoonAfterTheRanks) {
  const std::string job_id = NewJobId();
  const pid_t of_rank = StartSleeper(job_id);
  const SpawnResult apart = Spawn({.executable = kFakeWorker,
                                   .argv = {"fake_worker", "--sleep-ms", "60000"},
                                   .env = {"DSLAUNCH_JOB_ID=" + job_id},
                                   .own_session = true});
  ASSERT_GT(apart.pid, 0);
  const auto start = Clock::now();
  EXPECT_TRUE(SweepOrphans({.job_id = job_id, .session = getsid(0)},
                           {.grace = milliseconds(20'000), .teardown = milliseconds(2000)})
                  .empty());
  EXPECT_LT(Clock::now() - start, milliseconds(10'000));
  for (const pid_t pid : {of_rank, apart.pid}) EXPECT_EQ(waitpid(pid, nullptr, 0), pid);
}

TEST(OrphanSweep, FindsGroupMembersWithoutTheJobId) {
  const pid_t member = StartSleeper("");
  const std::vector<pid_t> groups = {member};
  EXPECT_TRUE(
      SweepOrphans({.job_id = NewJobId(), .groups = groups, .session = getsid(0)}, {}).empty());
  int status = 0;
  EXPECT_EQ(waitpid(member, &status, 0), member);
  EXPECT_EQ(WTERMSIG(status), SIGTERM);
}

TEST(OrphanSweep, SparesAGroupOfAnotherSession) {
  const SpawnResult elsewhere = Spawn({.executable = kFakeWorker,
                                       .argv = {"fake_worker", "--sleep-ms", "60000"},
                                       .own_session = true});
  ASSERT_GT(elsewhere.pid, 0);
  const std::vector<pid_t> groups = {elsewhere.pid};
  EXPECT_TRUE(
      SweepOrphans({.job_id = NewJobId(), .groups = groups, .session = getsid(0)}, {}).empty());
  EXPECT_FALSE(IsGone(elsewhere.pid));
  kill(elsewhere.pid, SIGKILL);
  EXPECT_EQ(waitpid(elsewhere.pid, nullptr, 0), elsewhere.pid);
}

TEST(OrphanSweep, ContinuesStoppedProcessToHandleSigterm) {
  const std::string job_id = NewJobId();
  const pid_t ours = StartSleeper(job_id);
  kill(ours, SIGSTOP);
  ASSERT_TRUE(WaitFor(milliseconds(2000), [ours] { return StateOf(ours) == 'T'; }));
  const auto start = Clock::now();
  EXPECT_TRUE(SweepOrphans({.job_id = job_id}, {}).empty());
  EXPECT_LT(Clock::now() - start, milliseconds(3000));
  EXPECT_EQ(waitpid(ours, nullptr, 0), ours);
}

}  // namespace
}  // namespace dslaunch::orphan_sweep_test
