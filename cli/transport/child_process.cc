#include "cli/transport/child_process.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <deque>
#include <future>
#include <thread>

#include "base/errno_text.h"
#include "base/os/subprocess.h"
#include "base/text/sanitize.h"
#include "base/text/signal_name.h"
#include "cli/transport/hello.h"

namespace dslaunch {
namespace {

constexpr milliseconds kEndAfterKill{2000};

Error SystemError(const std::string& step, int error_number) {
  return Error{ExitCode::kUnavailable, step + ": " + ErrnoText(error_number)};
}

// Spawns on a thread that never ends, because a child's parent-death signal is tied to the thread
// that forked it, not to the process. Otherwise the child would be signaled when the caller's
// thread ends.
SpawnResult SpawnForLife(const SpawnSpec& spec) {
  struct Spawner {
    Mutex mutex;
    CondVar wanted;
    std::deque<std::packaged_task<SpawnResult()>> tasks DSL_GUARDED_BY(mutex);

    void Run() {
      MutexLock lock(mutex);
      while (true) {
        wanted.Wait(mutex, [this]() DSL_REQUIRES(mutex) { return !tasks.empty(); });
        std::packaged_task<SpawnResult()> task = std::move(tasks.front());
        tasks.pop_front();
        lock.Unlock();
        task();
        lock.Lock();
      }
    }
  };
  static Spawner* const spawner = [] {
    auto* const made = new Spawner;
    std::thread([made] { made->Run(); }).detach();
    return made;
  }();
  std::packaged_task<SpawnResult()> task([&spec] { return Spawn(spec); });
  std::future<SpawnResult> result = task.get_future();
  {
    const MutexLock lock(spawner->mutex);
    spawner->tasks.push_back(std::move(task));
  }
  spawner->wanted.NotifyOne();
  return result.get();
}

}  // namespace

Result<std::unique_ptr<ChildProcess>> ChildProcess::Start(const std::vector<std::string>& argv,
                                                          Fate fate, int pass_fd) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    return SystemError("socketpair", errno);
  UniqueFd ours(ends[0]);
  const UniqueFd theirs(ends[1]);
  UniqueFd stderr_file(::memfd_create("child-stderr", MFD_CLOEXEC));
  if (!stderr_file) return SystemError("memfd_create", errno);
  ::fcntl(stderr_file.get(), F_SETFL, O_APPEND);
  SpawnSpec spec;
  spec.executable = argv.front();
  spec.argv = argv;
  spec.env = CurrentEnvironment();
  spec.stdin_fd = theirs.get();
  spec.stdout_fd = theirs.get();
  spec.stderr_fd = stderr_file.get();
  if (pass_fd >= 0) spec.pass_fds = {pass_fd};
  spec.own_session = true;
  spec.parent_death_signal = fate == Fate::kEndsWithUs ? SIGTERM : 0;
  const SpawnResult spawned = fate == Fate::kEndsWithUs ? SpawnForLife(spec) : Spawn(spec);
  if (spawned.pid < 0) return SystemError(spawned.failure.step, spawned.failure.error_number);
  return std::unique_ptr<ChildProcess>(
      new ChildProcess(spawned.pid, std::move(ours), std::move(stderr_file)));
}

ChildProcess::ChildProcess(pid_t pid, UniqueFd stream, UniqueFd stderr_file)
    : pid_(pid),
      watch_(pid),
      stream_(std::move(stream)),
      watchdog_(::fcntl(stream_.get(), F_DUPFD_CLOEXEC, 0)),
      stderr_file_(std::move(stderr_file)) {}

ChildProcess::~ChildProcess() {
  if (left_running_) return;
  Signal(SIGKILL);
  WaitEnd(Deadline::After(kEndAfterKill));
}

void ChildProcess::ShutStream() {
  const MutexLock lock(mutex_);
  if (!watchdog_) return;
  ::shutdown(watchdog_.get(), SHUT_RDWR);
  watchdog_.Reset();
}

void ChildProcess::ReleaseStream() {
  const MutexLock lock(mutex_);
  watchdog_.Reset();
}

std::optional<int> ChildProcess::WaitEnd(Deadline deadline) {
  if (!watch_.AwaitEnd(deadline)) return std::nullopt;
  const MutexLock lock(mutex_);
  if (!reaped_) reaped_ = ::waitpid(pid_, &status_, 0) == pid_;
  return status_;
}

void ChildProcess::Signal(int signal_number) {
  const MutexLock lock(mutex_);
  if (!reaped_) ::kill(pid_, signal_number);  // until reaped, the pid is the child's
}

void ChildProcess::SignalGroup(int signal_number) {
  const MutexLock lock(mutex_);
  if (!reaped_) ::kill(-pid_, signal_number);  // the child leads its own session and process group
}

std::string ChildProcess::StderrTail(size_t max_bytes) const {
  struct stat status {};
  ::fstat(stderr_file_.get(), &status);
  const off_t from = std::max<off_t>(0, status.st_size - static_cast<off_t>(max_bytes));
  std::string tail(static_cast<size_t>(status.st_size - from), '\0');
  const ssize_t n = ::pread(stderr_file_.get(), tail.data(), tail.size(), from);
  tail.resize(static_cast<size_t>(std::max<ssize_t>(0, n)));
  return tail;
}

std::string EndInWords(int wait_status) {
  return WIFSIGNALED(wait_status) ? "killed by " + SignalName(WTERMSIG(wait_status))
                                  : "exit status " + std::to_string(WEXITSTATUS(wait_status));
}

Result<std::string> RunForOutput(const std::vector<std::string>& argv, Deadline deadline,
                                 size_t max_bytes, std::string* printed) {
  Result<std::unique_ptr<ChildProcess>> child =
      ChildProcess::Start(argv, ChildProcess::Fate::kEndsWithUs);
  if (!child) {
    return Error{child.error().code,
                 Quoted(argv.front()) + " cannot be started: " + child.error().message};
  }
  const UniqueFd stream = (*child)->TakeStream();
  ::shutdown(stream.get(), SHUT_WR);
  std::string output;
  std::array<char, 16384> bytes;
  while (true) {
    pollfd ready{stream.get(), POLLIN, 0};
    const int polled = ::poll(&ready, 1, deadline.PollMs());
    if (polled < 0 && errno == EINTR) continue;
    if (polled <= 0) break;
    const ssize_t n = ::recv(stream.get(), bytes.data(), bytes.size(), 0);
    if (n <= 0) break;
    output.append(bytes.data(), static_cast<size_t>(n));
    if (output.size() > max_bytes) output.resize(max_bytes);
  }
  const std::optional<int> status = (*child)->WaitEnd(deadline);
  if (!status) {
    return Error{ExitCode::kTimedOut, Quoted(argv.front()) + " did not end in time"};
  }
  if (*status != 0) {
    const std::string tail = OneLine((*child)->StderrTail(), 512);
    return Error{ExitCode::kUnavailable, Quoted(argv.front()) + " ended with " +
                                             EndInWords(*status) +
                                             (tail.empty() ? "" : "; it printed: " + tail)};
  }
  if (printed != nullptr) *printed = (*child)->StderrTail(max_bytes);
  return output;
}

}  // namespace dslaunch
