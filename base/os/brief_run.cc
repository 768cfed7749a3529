#include "base/os/brief_run.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>

#include "base/os/child_watch.h"
#include "base/os/subprocess.h"
#include "base/unique_fd.h"

namespace dslaunch {
namespace {

constexpr size_t kMaxOutputBytes = 4096;

// Appends the content of the pipe to `output`. Returns false at the end of the pipe. Reads and
// discards output beyond the limit, because a full pipe would block the program.
bool ReadOutput(int fd, std::string& output) {
  char chunk[4096];
  const ssize_t n = ::read(fd, chunk, sizeof chunk);
  if (n < 0) return errno == EINTR || errno == EAGAIN;
  output.append(chunk, std::min(static_cast<size_t>(n), kMaxOutputBytes - output.size()));
  return n > 0;
}

}  // namespace

BriefRun RunBriefly(const std::vector<std::string>& argv,
                    const std::vector<std::string>& environment, Deadline deadline) {
  BriefRun run;
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) return {BriefRun::End::kNotStarted, errno, ""};
  UniqueFd reader(ends[0]), writer(ends[1]);
  SpawnSpec spec;
  spec.executable = argv.front();
  spec.argv = argv;
  spec.env = environment;
  spec.stdout_fd = writer.get();
  spec.stderr_fd = writer.get();
  spec.own_group = true;
  spec.parent_death_signal = SIGKILL;
  spec.no_new_privileges = true;
  const SpawnResult spawned = Spawn(spec);
  writer.Reset();
  if (spawned.pid < 0) return {BriefRun::End::kNotStarted, spawned.failure.error_number, ""};

  // A child of the program may keep the pipe open, so the loop waits for the exit of the program
  // and not for the end of its output.
  const ChildWatch watch(spawned.pid);
  bool reading = true;
  bool ended = false;
  while (!ended && !deadline.Expired()) {
    pollfd fds[2] = {{watch.fd(), POLLIN, 0}, {reading ? reader.get() : -1, POLLIN, 0}};
    if (::poll(fds, 2, watch.PollMs(deadline)) < 0) continue;
    if (fds[1].revents != 0) reading = ReadOutput(reader.get(), run.output);
    ended = watch.Ended();
  }
  ::kill(-spawned.pid, SIGKILL);
  int status = 0;
  while (::waitpid(spawned.pid, &status, 0) < 0 && errno == EINTR) {
  }
  // Reads the rest of the pipe's content without waiting for more.
  while (reading && run.output.size() < kMaxOutputBytes) {
    const size_t before = run.output.size();
    reading = ReadOutput(reader.get(), run.output) && run.output.size() > before;
  }
  if (!ended) {
    run.end = BriefRun::End::kTimedOut;
  } else if (WIFSIGNALED(status)) {
    run.end = BriefRun::End::kSignalled;
    run.number = WTERMSIG(status);
  } else {
    run.end = BriefRun::End::kExited;
    run.number = WEXITSTATUS(status);
  }
  return run;
}

}  // namespace dslaunch
