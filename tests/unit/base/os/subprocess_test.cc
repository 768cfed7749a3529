#include "base/os/subprocess.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <fstream>
#include <optional>
#include <sstream>

#include "base/unique_fd.h"
#include "tests/support/processes.h"

namespace dslaunch::subprocess_test {
namespace {

constexpr char kFakeWorker[] = DSLAUNCH_FAKE_WORKER;

SpawnSpec Shell(const std::string& script) {
  return {.executable = "/bin/sh", .argv = {"sh", "-c", script}, .env = {"PATH=/usr/bin:/bin"}};
}

// Runs a program to its end. Returns the status from waitpid(), or nullopt if the process could not
// be started.
std::optional<int> RunToEnd(const SpawnSpec& spec) {
  const SpawnResult result = Spawn(spec);
  if (result.pid < 0) return std::nullopt;
  int status = 0;
  EXPECT_EQ(waitpid(result.pid, &status, 0), result.pid);
  return status;
}

// Runs a program to its end and returns the text that it prints. Expects exit code 0.
std::string OutputOf(SpawnSpec spec) {
  const TempDir dir;
  const UniqueFd out(open((dir / "out").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  spec.stdout_fd = out.get();
  EXPECT_EQ(RunToEnd(spec), 0);
  return ReadFile(dir / "out");
}

void ExpectFailure(const SpawnSpec& spec, int error_number, const std::string& step) {
  const SpawnResult result = Spawn(spec);
  EXPECT_EQ(result.pid, -1);
  EXPECT_EQ(result.failure.error_number, error_number);
  EXPECT_EQ(result.failure.step, step);
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1) << "a child was left behind";
}

TEST(Spawn, ReportsExitCodeAndSignal) {
  const auto code = RunToEnd(Shell("exit 7"));
  ASSERT_TRUE(code);
  EXPECT_EQ(WEXITSTATUS(*code), 7);
  const auto killed = RunToEnd(Shell("kill -KILL $$"));
  ASSERT_TRUE(killed);
  EXPECT_TRUE(WIFSIGNALED(*killed));
  EXPECT_EQ(WTERMSIG(*killed), SIGKILL);
}

TEST(Spawn, ReportsErrnoAndStepOfFailedStart) {
  const TempDir dir;
  ExpectFailure({.executable = dir / "missing", .argv = {"missing"}}, ENOENT, "execve");
  std::ofstream(dir / "plain") << "not a program\n";
  ExpectFailure({.executable = dir / "plain", .argv = {"plain"}}, EACCES, "execve");
  ASSERT_EQ(chmod((dir / "plain").c_str(), 0700), 0);
  ExpectFailure({.executable = dir / "plain", .argv = {"plain"}}, ENOEXEC, "execve");
  SpawnSpec nowhere = Shell("true");
  nowhere.cwd = dir / "missing";
  ExpectFailure(nowhere, ENOENT, "chdir");
  SpawnSpec low = Shell("true");
  low.pass_fds = {1};
  ExpectFailure(low, EINVAL, "keep descriptor open");
}

TEST(Spawn, PassesArgumentsAndEnvironmentByteForByte) {
  std::string all_bytes;
  for (int byte = 1; byte < 256; ++byte) all_bytes.push_back(static_cast<char>(byte));
  const TempDir dir;
  const UniqueFd out(open((dir / "out").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  SpawnSpec spec = {
      .executable = kFakeWorker,
      .argv = {"fake_worker", "--print-line", all_bytes, "--print-line", "", "--print-line",
               "$(echo no); *", "--print-env", "STRANGE", "--print-env", "HOME"},
      .env = {"STRANGE=" + all_bytes},
      .stdout_fd = out.get()};
  ASSERT_EQ(RunToEnd(spec), 0);
  EXPECT_EQ(ReadFile(dir / "out"),
            all_bytes + "\n\n$(echo no); *\nSTRANGE=" + all_bytes + "\nHOME is not set\n");
}

// The child blocks while it opens its stdout, a FIFO, until a reader opens it.
TEST(Spawning, ReturnsBeforeASlowStartHasFinished) {
  const TempDir dir;
  const std::string fifo = dir / "fifo";
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  SpawnSpec spec = Shell("echo here");
  spec.stdout_file = fifo;
  Spawning spawning(spec);
  ASSERT_GT(spawning.pid(), 0);
  EXPECT_FALSE(spawning.Result());
  const UniqueFd reader(open(fifo.c_str(), O_RDONLY | O_CLOEXEC));
  ASSERT_TRUE(WaitFor(milliseconds(20'000), [&] { return spawning.Result().has_value(); }));
  EXPECT_EQ(spawning.Result()->pid, spawning.pid());
  int status = 0;
  EXPECT_EQ(waitpid(spawning.pid(), &status, 0), spawning.pid());
  EXPECT_EQ(status, 0);
  char text[16] = {};
  EXPECT_EQ(read(reader.get(), text, sizeof text), 5);
  EXPECT_STREQ(text, "here\n");
}

TEST(Spawn, AppendsToPrivateOutputFiles) {
  const TempDir dir;
  for (const char* word : {"one", "two"}) {
    SpawnSpec spec = Shell(std::string("echo ") + word + "; echo no >&2");
    spec.stdout_file = dir / "out";
    spec.stderr_file = dir / "err";
    EXPECT_EQ(RunToEnd(spec), 0);
  }
  EXPECT_EQ(ReadFile(dir / "out"), "one\ntwo\n");
  EXPECT_EQ(ReadFile(dir / "err"), "no\nno\n");
  struct stat info = {};
  ASSERT_EQ(stat((dir / "out").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  SpawnSpec nowhere = Shell("true");
  nowhere.stderr_file = dir / "missing/err";
  ExpectFailure(nowhere, ENOENT, "open stderr file");
}

// Runs in a separate process, because the raised limit would stay raised.
TEST(Spawn, ChildrenGetTheOriginalDescriptorLimit) {
  const pid_t child = fork();
  if (child == 0) {
    rlimit limit = {};
    getrlimit(RLIMIT_NOFILE, &limit);
    if (limit.rlim_max < 100) _exit(2);
    limit.rlim_cur = 99;
    setrlimit(RLIMIT_NOFILE, &limit);
    RaiseOpenFileLimit();
    RaiseOpenFileLimit();
    getrlimit(RLIMIT_NOFILE, &limit);
    if (limit.rlim_cur != limit.rlim_max) _exit(3);
    _exit(RunToEnd(Shell("test $(ulimit -S -n) = 99 && test $(ulimit -H -n) != 99")) == 0 ? 0 : 4);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(Spawn, ChildrenGetTheirUmaskAndLimits) {
  // Runs in a separate process, because the change is permanent.
  const pid_t child = fork();
  if (child == 0) {
    umask(027);
    MakeProcessPrivate();
    rlimit core = {};
    getrlimit(RLIMIT_CORE, &core);
    SpawnSpec spec = Shell("umask; ulimit -S -n");
    const bool is_private = core.rlim_cur == 0 && OutputOf(spec).starts_with("0077");
    spec.as_before = true;
    const bool is_restored = OutputOf(spec).starts_with("0027");
    spec.umask = 007;
    spec.limits = {{RLIMIT_NOFILE, {123, 456}}};
    const bool is_chosen = OutputOf(spec) == "0007\n123\n";
    _exit((is_private ? 0 : 1) | (is_restored ? 0 : 2) | (is_chosen ? 0 : 4));
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), 0);
  SpawnSpec spec = Shell("true");
  spec.limits = {{-1, {1, 1}}};
  ExpectFailure(spec, EINVAL, "setrlimit");
}

TEST(Spawn, ChildInheritsOnlyPassedDescriptors) {
  const UniqueFd leaky(open("/dev/zero", O_RDONLY));  // without O_CLOEXEC, on purpose
  const UniqueFd far(fcntl(leaky.get(), F_DUPFD, 200));
  const UniqueFd passed(fcntl(leaky.get(), F_DUPFD_CLOEXEC, 100));
  const UniqueFd passed_too(fcntl(leaky.get(), F_DUPFD_CLOEXEC, 50));
  ASSERT_EQ(passed.get(), 100);
  ASSERT_EQ(passed_too.get(), 50);
  SpawnSpec spec = Shell("ls /proc/$$/fd; true");
  spec.pass_fds = {passed.get(), passed_too.get()};
  std::istringstream fds(OutputOf(spec));
  std::vector<int> seen;
  for (int fd = 0; fds >> fd;) seen.push_back(fd);
  std::ranges::sort(seen);
  EXPECT_EQ(seen, (std::vector<int>{0, 1, 2, 50, 100}));
}

TEST(Spawn, OpensDevNullForMissingStandardDescriptors) {
  EXPECT_EQ(OutputOf(Shell("readlink /proc/$$/fd/0 /proc/$$/fd/2")), "/dev/null\n/dev/null\n");
}

TEST(Spawn, SwapsStandardDescriptors) {
  const TempDir dir;
  const UniqueFd a(open((dir / "a").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  const UniqueFd saved_out(fcntl(1, F_DUPFD_CLOEXEC, 3)), saved_err(fcntl(2, F_DUPFD_CLOEXEC, 3));
  dup2(a.get(), 2);
  SpawnSpec spec = Shell("echo to stdout");
  spec.stdout_fd = 2;  // the caller's stderr becomes the child's stdout
  spec.stderr_fd = 1;
  const auto status = RunToEnd(spec);
  dup2(saved_err.get(), 2);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(ReadFile(dir / "a"), "to stdout\n");
}

TEST(Spawn, ResetsSignalDispositionsAndMask) {
  const auto old_pipe = std::signal(SIGPIPE, SIG_IGN);
  const auto old_usr1 = std::signal(SIGUSR1, [](int) {});
  sigset_t blocked, before;
  sigemptyset(&blocked);
  sigaddset(&blocked, SIGTERM);
  sigprocmask(SIG_BLOCK, &blocked, &before);
  SpawnSpec spec = {.executable = "/bin/sed",
                    .argv = {"sed", "-n", "/^Sig[BIC]/p", "/proc/self/status"}};
  const std::string out = OutputOf(spec);
  sigprocmask(SIG_SETMASK, &before, nullptr);
  std::signal(SIGPIPE, old_pipe);
  std::signal(SIGUSR1, old_usr1);
  EXPECT_EQ(out,
            "SigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\nSigCgt:\t0000000000000000\n");
}

TEST(Spawn, ChangesTheWorkingDirectory) {
  const TempDir dir;
  SpawnSpec spec = Shell("pwd -P");
  spec.cwd = dir.path();
  EXPECT_EQ(OutputOf(spec), dir.path() + "\n");
}

TEST(Spawn, StartsInOwnGroupOrSession) {
  SpawnSpec spec = Shell("exec sleep 60");
  spec.own_group = true;
  const SpawnResult group = Spawn(spec);
  ASSERT_GT(group.pid, 0);
  EXPECT_EQ(getpgid(group.pid), group.pid);
  EXPECT_EQ(getsid(group.pid), getsid(0));
  spec.own_session = true;
  const SpawnResult session = Spawn(spec);
  ASSERT_GT(session.pid, 0);
  EXPECT_EQ(getsid(session.pid), session.pid);
  for (const pid_t pid : {group.pid, session.pid}) {
    kill(-pid, SIGKILL);
    EXPECT_EQ(waitpid(pid, nullptr, 0), pid);
  }
}

TEST(Spawn, StartsOutsideACgroupThatItCannotEnter) {
  const TempDir plain;
  const UniqueFd folder(open(plain.path().c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  SpawnSpec spec = Shell("exit 7");
  spec.cgroup_fd = folder.get();
  const auto status = RunToEnd(spec);
  ASSERT_TRUE(status);
  EXPECT_EQ(WEXITSTATUS(*status), 7);
}

TEST(Spawn, ChildDiesWithItsParent) {
  const TempDir dir;
  const pid_t parent = fork();
  if (parent == 0) {
    SpawnSpec spec = {
        .executable = kFakeWorker,
        .argv = {"fake_worker", "--ignore-term", "--sleep-ms", "60000", "--pid-file", dir.path()},
        .parent_death_signal = SIGKILL};
    _exit(Spawn(spec).pid > 0 && AwaitPidFile(dir / "rank_0.pid") > 0 ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(parent, &status, 0), parent);
  ASSERT_EQ(status, 0);
  const pid_t child = AwaitPidFile(dir / "rank_0.pid");
  ASSERT_GT(child, 0);
  EXPECT_TRUE(WaitFor(milliseconds(2000), [child] { return IsGone(child); }));
}

TEST(Spawn, StartsEightProcessesInMilliseconds) {
  std::vector<pid_t> pids;
  const auto start = Clock::now();
  for (int i = 0; i < 8; ++i)
    pids.push_back(Spawn({.executable = "/bin/true", .argv = {"true"}}).pid);
  const auto took = Clock::now() - start;
  for (const pid_t pid : pids) EXPECT_EQ(waitpid(pid, nullptr, 0), pid);
  RecordProperty(
      "spawn_8_us",
      std::to_string(std::chrono::duration_cast<std::chrono::microseconds>(took).count()));
  EXPECT_LT(took, milliseconds(500));  // a loose limit, because test machines are busy
}

TEST(Spawn, BindsToCpusAndMemory) {
  SpawnSpec spec = Shell("grep -E 'Cpus_allowed_list' /proc/self/status; cat /proc/self/numa_maps");
  spec.cpus = {0};
  EXPECT_NE(OutputOf(spec).find("Cpus_allowed_list:\t0\n"), std::string::npos);
  if (syscall(SYS_set_mempolicy, 0, nullptr, 0UL) != 0) GTEST_SKIP() << "not allowed here";
  spec.memory_nodes = {0};
  EXPECT_NE(OutputOf(spec).find(" bind:0 "), std::string::npos);
  spec.memory_preferred = true;
  EXPECT_NE(OutputOf(spec).find(" prefer:0 "), std::string::npos);
}

TEST(Spawn, ReportsCpusOrMemoryThatCannotBeBound) {
  SpawnSpec spec = Shell("true");
  spec.cpus = {60'000};
  ExpectFailure(spec, EINVAL, "bind to CPUs");
  spec.cpus.clear();
  spec.memory_nodes = {1'000};
  ExpectFailure(spec, EINVAL, "bind to memory");
}

TEST(ReadOpenFilesTest, CountsDescriptorsOfThisProcess) {
  const OpenFiles before = ReadOpenFiles();
  EXPECT_GE(before.open, 3u);
  EXPECT_GT(before.limit, before.open);
  const UniqueFd one(::dup(0));
  EXPECT_EQ(ReadOpenFiles().open, before.open + 1);
}

}  // namespace
}  // namespace dslaunch::subprocess_test
