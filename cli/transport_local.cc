#include "cli/transport_local.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <mutex>
#include <utility>

#include "agent/subprocess.h"
#include "cli/hello.h"
#include "proto/contract/pidfd.h"

namespace dslaunch {
namespace {

constexpr off_t kStderrTailBytes = 4096;
constexpr milliseconds kLeaveToEnd{2000};

class LocalLink : public NodeLink {
 public:
  LocalLink(pid_t pid, UniqueFd stream, UniqueFd stderr_file)
      : pid_(pid),
        pidfd_(PidfdOpen(pid)),
        stream_(std::move(stream)),
        watchdog_(::fcntl(stream_.get(), F_DUPFD_CLOEXEC, 0)),
        stderr_file_(std::move(stderr_file)) {}

  // The keeper empties its node when its stream ends; one that is stuck is killed.
  ~LocalLink() override {
    ShutDown();
    if (Reap(Deadline::After(kLeaveToEnd))) return;
    PidfdSendSignal(pidfd_.get(), SIGKILL);
    Reap(Deadline::After(kLeaveToEnd));
  }

  UniqueFd TakeFd() override { return std::move(stream_); }

  void Abort(const std::string&) override { ShutDown(); }

  bool WaitEnd(Deadline deadline) override {
    ShutDown();  // the held duplicate must not keep a closed stream open
    return Reap(deadline);
  }

  std::string StderrTail() const override {
    struct stat status {};
    ::fstat(stderr_file_.get(), &status);
    const off_t from = std::max<off_t>(0, status.st_size - kStderrTailBytes);
    std::string tail(static_cast<size_t>(status.st_size - from), '\0');
    const ssize_t n = ::pread(stderr_file_.get(), tail.data(), tail.size(), from);
    tail.resize(static_cast<size_t>(std::max<ssize_t>(0, n)));
    return tail;
  }

  std::string Address() const override { return "127.0.0.1"; }

  // Reads up to the end of the hello line and not one byte further.
  Result<void> AwaitHello(const NodeTarget& target, HelloScanner scanner, Deadline deadline) {
    while (true) {
      pollfd ready{stream_.get(), POLLIN, 0};
      const int polled = ::poll(&ready, 1, deadline.PollMs());
      if (polled < 0 && errno == EINTR) continue;
      if (polled == 0)
        return HelloError(target, scanner, "did not say hello in time", ExitCode::kTimedOut);
      char peeked[4096];
      const ssize_t n = ::recv(stream_.get(), peeked, sizeof peeked, MSG_PEEK | MSG_DONTWAIT);
      if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
      if (n <= 0)
        return HelloError(target, scanner, "ended before it said hello", ExitCode::kUnavailable);
      const HelloScanner::State state = scanner.Feed({peeked, static_cast<size_t>(n)});
      if (state == HelloScanner::State::kFailed) {
        return HelloError(target, scanner, "said no proper hello: " + scanner.reason(),
                          ExitCode::kUnavailable);
      }
      if (::recv(stream_.get(), peeked, static_cast<size_t>(n) - scanner.leftover().size(), 0) <
          0) {
        return HelloError(target, scanner, "cannot be read", ExitCode::kIo);
      }
      if (state == HelloScanner::State::kFound) return {};
    }
  }

 private:
  Error HelloError(const NodeTarget& target, const HelloScanner& scanner, const std::string& what,
                   ExitCode code) {
    Reap(Deadline::After(milliseconds(100)));  // it may be about to say why
    std::string message = "node '" + target.name + "': the local agent " + what;
    const std::string said = OneLine(StderrTail() + " " + scanner.Skipped(), 512);
    if (!said.empty()) message += "; it printed: " + said;
    return Error{code, message + "; is dslaunch-agent of the same build as dslaunch?"};
  }

  void ShutDown() {
    const std::lock_guard lock(mutex_);
    if (!watchdog_) return;
    ::shutdown(watchdog_.get(), SHUT_RDWR);
    watchdog_.Reset();
  }

  // True when the keeper has ended; it is reaped exactly once.
  bool Reap(Deadline deadline) {
    pollfd ended{pidfd_.get(), POLLIN, 0};
    int polled = 0;
    do {
      polled = ::poll(&ended, 1, deadline.PollMs());
    } while (polled < 0 && errno == EINTR);
    if (polled <= 0) return false;
    const std::lock_guard lock(mutex_);
    if (pid_ > 0) ::waitpid(std::exchange(pid_, -1), nullptr, 0);
    return true;
  }

  std::mutex mutex_;  // guards pid_ and watchdog_
  pid_t pid_;
  const UniqueFd pidfd_;
  UniqueFd stream_;
  UniqueFd watchdog_;  // the stream again, so that it can be shut down after it was given away
  const UniqueFd stderr_file_;
};

Error SystemError(const NodeTarget& target, const std::string& what, int error_number) {
  return Error{ExitCode::kUnavailable, "node '" + target.name +
                                           "': cannot start the local agent: " + what + ": " +
                                           std::strerror(error_number)};
}

}  // namespace

Result<std::unique_ptr<NodeLink>> LocalTransport::Connect(const NodeTarget& target,
                                                          Deadline deadline) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    return SystemError(target, "socketpair", errno);
  }
  UniqueFd ours(ends[0]);
  UniqueFd theirs(ends[1]);
  UniqueFd stderr_file(::memfd_create("agent-stderr", MFD_CLOEXEC));
  if (!stderr_file) return SystemError(target, "memfd_create", errno);

  const std::string nonce = MakeNonce();
  SpawnSpec spec;
  spec.executable = agent_.path;
  spec.argv = AgentArguments(role_, nonce);
  spec.argv.insert(spec.argv.begin(), "dslaunch-agent");
  spec.env = CurrentEnvironment();
  spec.stdin_fd = theirs.get();
  spec.stdout_fd = theirs.get();
  spec.stderr_fd = stderr_file.get();
  spec.pass_fd = role_.command_fd;
  spec.own_session = true;
  const SpawnResult spawned = Spawn(spec);
  theirs.Reset();
  if (spawned.pid < 0) {
    return SystemError(target, agent_.path + ": " + spawned.failure.step,
                       spawned.failure.error_number);
  }
  auto link = std::make_unique<LocalLink>(spawned.pid, std::move(ours), std::move(stderr_file));
  DSL_TRY(link->AwaitHello(target, HelloScanner(nonce), deadline));
  return std::unique_ptr<NodeLink>(std::move(link));
}

}  // namespace dslaunch
