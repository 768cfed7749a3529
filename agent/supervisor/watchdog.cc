#include "agent/supervisor/watchdog.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <utility>

#include "base/deadline.h"
#include "base/os/child_watch.h"
#include "base/os/subprocess.h"

namespace dslaunch {
namespace {

constexpr milliseconds kKillLimit{1'000};

// A record in the pipe is a process group to add, or this value to remove all earlier groups.
constexpr pid_t kForget = 0;

// Leaves the session and closes all other descriptors, because other processes may wait for a
// descriptor to be closed.
void Withdraw(int pipe_end) {
  setsid();
  prctl(PR_SET_NAME, "dslaunch-watch");
  dup2(pipe_end, STDIN_FILENO);
  const UniqueFd dev_null(open("/dev/null", O_RDWR | O_CLOEXEC));
  dup2(dev_null.get(), STDOUT_FILENO);
  dup2(dev_null.get(), STDERR_FILENO);
  CloseFrom(STDERR_FILENO + 1);
  if (chdir("/") != 0) return;  // leaves the folder, whose file system would otherwise stay busy
}

[[noreturn]] void RunWatchdog(Orphans orphans, const GracefulKillOptions& graceful_kill) {
  while (true) {
    pid_t group = 0;
    const ssize_t got = read(STDIN_FILENO, &group, sizeof group);
    if (got < 0 && errno == EINTR) continue;
    if (got != static_cast<ssize_t>(sizeof group)) break;
    if (group == kForget) {
      orphans.groups.clear();
    } else {
      orphans.groups.push_back(group);
    }
  }
  SweepOrphans(orphans, graceful_kill);
  _exit(0);
}

}  // namespace

bool Watchdog::Open() {
  int fds[2];
  if (pipe2(fds, O_CLOEXEC) < 0) return false;
  sleeper_end_.Reset(fds[0]);
  waker_end_.Reset(fds[1]);
  // The supervisor must not block if the watchdog is stopped, so the pipe is non-blocking.
  return fcntl(waker_end_.get(), F_SETFL, O_NONBLOCK) == 0;
}

void Watchdog::HoldFromAgent() {
  sleeper_end_.Reset();
  waker_end_.Release();
}

void Watchdog::Start(Orphans orphans, const GracefulKillOptions& graceful_kill) {
  // Only end of file on the pipe may wake the watchdog, so all signals are blocked in it.
  sigset_t all, before;
  sigfillset(&all);
  sigprocmask(SIG_SETMASK, &all, &before);
  const pid_t pid = fork();
  if (pid == 0) {
    Withdraw(sleeper_end_.get());
    RunWatchdog(std::move(orphans), graceful_kill);
  }
  sigprocmask(SIG_SETMASK, &before, nullptr);
  sleeper_end_.Reset();
  started_ = true;
  pid_ = pid;
}

void Watchdog::AddGroup(pid_t group) { Notify(group); }

void Watchdog::ForgetGroups() { Notify(kForget); }

// Sends a group to the watchdog. If the watchdog is dead (EPIPE) or stopped (EAGAIN), the message
// is lost and the job continues.
void Watchdog::Notify(pid_t group) {
  if (pid_ <= 0) return;
  ssize_t written = 0;
  do {
    written = write(waker_end_.get(), &group, sizeof group);
  } while (written < 0 && errno == EINTR);
}

void Watchdog::End() {
  if (pid_ <= 0) return;
  kill(pid_, SIGKILL);  // the pid is not reused, because the watchdog is not reaped yet
  if (ChildWatch(pid_).AwaitEnd(Deadline::After(kKillLimit))) waitpid(pid_, nullptr, WNOHANG);
  pid_ = -1;
}

}  // namespace dslaunch
