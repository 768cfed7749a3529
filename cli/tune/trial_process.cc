#include "cli/tune/trial_process.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>

#include "base/os/child_watch.h"
#include "base/os/subprocess.h"
#include "base/text/signal_name.h"

namespace dslaunch {
namespace {

// Limit for the grace period and the teardown on all nodes.
constexpr milliseconds kEndingTakes{90'000};

// The output of a process, read from a pipe. Only the end of a long output is kept.
class Output {
 public:
  bool Open() {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) return false;
    reader_ = UniqueFd(ends[0]);
    writer_ = UniqueFd(ends[1]);
    // The job inherits the writing end, so only the reading end is non-blocking.
    ::fcntl(writer_.get(), F_SETFL, ::fcntl(writer_.get(), F_GETFL) & ~O_NONBLOCK);
    return true;
  }
  // Returns the descriptor of the pipe; -1 after the end of the output.
  int fd() const { return reader_.get(); }
  int writer() const { return writer_.get(); }
  void CloseWriter() { writer_.Reset(); }

  // Reads all bytes that are available now.
  void Read() {
    char chunk[65536];
    while (reader_.valid()) {
      const ssize_t n = ::read(reader_.get(), chunk, sizeof chunk);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return;
      if (n == 0) return reader_.Reset();
      Keep({chunk, static_cast<size_t>(n)});
    }
  }
  std::string Take() { return std::move(text_); }

 private:
  void Keep(std::string_view text) {
    text_ += text;
    if (text_.size() > kMaxJobOutputBytes) text_.erase(0, text_.size() - kMaxJobOutputBytes / 2);
  }

  UniqueFd reader_, writer_;
  std::string text_;
};

sigset_t StopSignals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int number : NotIgnored({SIGINT, SIGTERM, SIGHUP, SIGQUIT})) sigaddset(&set, number);
  return set;
}

JobRun CannotStart(int error_number) {
  JobRun run;
  run.exit_code = ToInt(ExitCode::kCannotExecute);
  run.err = std::string("dslaunch: cannot start dslaunch: ") + std::strerror(error_number) + "\n";
  return run;
}

}  // namespace

ProcessJobRunner::ProcessJobRunner(std::string executable) : executable_(std::move(executable)) {
  const sigset_t set = StopSignals();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  signals_ = UniqueFd(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
}

ProcessJobRunner::~ProcessJobRunner() {
  const sigset_t set = StopSignals();
  pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
}

int ProcessJobRunner::TakeSignal() {
  int newest = 0;
  signalfd_siginfo info;
  while (::read(signals_.get(), &info, sizeof info) == sizeof info) {
    newest = static_cast<int>(info.ssi_signo);
  }
  return newest;
}

JobRun ProcessJobRunner::Run(const std::vector<std::string>& arguments, double limit_s) {
  JobRun run;
  run.limit_s = limit_s;
  run.signal = TakeSignal();
  if (run.signal != 0) return run;
  Output out, err;
  if (!out.Open() || !err.Open()) return CannotStart(errno);
  SpawnSpec spec;
  spec.executable = executable_;
  spec.argv = {executable_};
  spec.argv.insert(spec.argv.end(), arguments.begin(), arguments.end());
  spec.env = CurrentEnvironment();
  spec.stdout_fd = out.writer();
  spec.stderr_fd = err.writer();
  spec.own_group = true;
  spec.parent_death_signal = SIGTERM;
  const Clock::time_point start = Clock::now();
  const SpawnResult spawned = Spawn(spec);
  if (spawned.pid < 0) return CannotStart(spawned.failure.error_number);
  out.CloseWriter();
  err.CloseWriter();

  Deadline deadline = Deadline::After(std::chrono::ceil<milliseconds>(
      std::chrono::duration<double>(std::clamp(limit_s, 0.0, 1e9))));
  const ChildWatch watch(spawned.pid);
  bool ending = false, killed = false;
  while (!watch.Ended()) {
    pollfd fds[4] = {{watch.fd(), POLLIN, 0},
                     {out.fd(), POLLIN, 0},
                     {err.fd(), POLLIN, 0},
                     {signals_.get(), POLLIN, 0}};
    ::poll(fds, 4, watch.PollMs(deadline));
    out.Read();
    err.Read();
    if (const int signal = TakeSignal(); signal != 0) {
      ::kill(spawned.pid, signal);
      run.signal = signal;
      if (!ending) deadline = Deadline::After(kEndingTakes);
      ending = true;
    }
    if (!deadline.Expired()) continue;
    if (killed) break;
    killed = ending;
    run.timed_out = run.timed_out || !ending;
    ::kill(ending ? -spawned.pid : spawned.pid, ending ? SIGKILL : SIGTERM);
    ending = true;
    deadline = Deadline::After(kEndingTakes);
  }
  int status = 0;
  while (::waitpid(spawned.pid, &status, 0) < 0 && errno == EINTR) {
  }
  run.wall_s = std::chrono::duration<double>(Clock::now() - start).count();
  out.Read();
  err.Read();
  run.out = out.Take();
  run.err = err.Take();
  run.exit_code = WIFSIGNALED(status) ? ExitCodeForSignal(WTERMSIG(status)) : WEXITSTATUS(status);
  return run;
}

}  // namespace dslaunch
