#include "agent/frames/frame_helper.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <asio/buffer.hpp>
#include <asio/posix/stream_descriptor.hpp>
#include <asio/post.hpp>
#include <asio/steady_timer.hpp>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <utility>

#include "agent/frames/frame_reader.h"
#include "agent/frames/stack_snapshot.h"
#include "base/errno_text.h"
#include "base/os/pidfd.h"
#include "base/os/proc_text.h"
#include "base/os/subprocess.h"
#include "base/text/sanitize.h"
#include "base/unique_fd.h"

namespace dslaunch {
namespace {

constexpr size_t kMaxAnswerBytes = size_t{1} << 20;
// Limit of the child's address space, which includes the mapped files of LibTorch.
constexpr rlim_t kMaxMemory = rlim_t{8} << 30;

// The process to read, as the supervisor saw that process before the fork.
struct Subject {
  pid_t pid = 0;
  std::string maps = {};
  std::vector<StackSnapshot> stacks = {};
  std::vector<pid_t> running = {};
};

pb::ProcessStacks ReadFrames(Subject& subject) {
  pb::ProcessStacks answer;
  for (const pid_t tid : subject.running) {
    if (auto stack = CopyRunningStack(subject.pid, tid, FrameHelper::kStopLimit))
      subject.stacks.push_back(*std::move(stack));
  }
  std::string problem;
  const std::vector<std::vector<NativeFrame>> frames =
      ReadNativeFrames(subject.pid, subject.maps, subject.stacks, problem);
  answer.set_no_native(SanitizeForTerminal(problem));
  for (size_t i = 0; i < frames.size(); ++i) {
    pb::ThreadStack& thread = *answer.add_threads();
    thread.set_tid(subject.stacks[i].tid);
    for (const NativeFrame& frame : frames[i]) {
      pb::StackFrame& added = *thread.add_frames();
      added.set_function(frame.function.empty() ? "?" : frame.function);
      added.set_file(frame.file);
      added.set_line(frame.line);
    }
  }
  return answer;
}

// Runs the child. The child has no descriptor of the supervisor, and ends when the supervisor ends.
[[noreturn]] void RunChild(int answer_fd, pid_t parent, Subject& subject) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);
  prctl(PR_SET_NAME, "dslaunch-frames");
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGCHLD})
    std::signal(signal, SIG_DFL);
  if (dup2(answer_fd, STDERR_FILENO + 1) < 0) _exit(1);
  const int fd = STDERR_FILENO + 1;
  CloseFrom(fd + 1);
  const rlimit memory = {kMaxMemory, kMaxMemory};
  const rlimit no_core = {0, 0};
  setrlimit(RLIMIT_AS, &memory);
  setrlimit(RLIMIT_CORE, &no_core);
  unsetenv("DEBUGINFOD_URLS");  // prevents requests for debug files over the network
  const std::string bytes = ReadFrames(subject).SerializeAsString();
  size_t sent = 0;
  while (sent < bytes.size()) {
    const ssize_t wrote = write(fd, bytes.data() + sent, bytes.size() - sent);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) _exit(1);
    sent += static_cast<size_t>(wrote);
  }
  _exit(0);
}

}  // namespace

struct FrameHelper::Run {
  Run(asio::io_context& loop, Done call) : pipe(loop), timer(loop), done(std::move(call)) {}

  asio::posix::stream_descriptor pipe;
  asio::steady_timer timer;
  Done done;  // callback of Begin(); empty once it was called
  UniqueFd child;
  std::string bytes;
  std::array<char, 1 << 14> buffer = {};
};

void FrameHelper::Begin(pid_t pid, std::vector<pid_t> tids, Done done) {
  auto run = std::make_shared<Run>(loop_, std::move(done));
  const auto fail = [&](const std::string& problem) {
    asio::post(loop_, [run, problem] { Finish(*run, problem); });
  };
  if (tids.size() > kMaxThreads) tids.resize(kMaxThreads);
  Subject subject = {.pid = pid};
  subject.maps = ReadWhole("/proc/" + std::to_string(pid) + "/maps").value_or("");
  subject.stacks = CopyWaitingStacks(pid, tids, subject.running);
  if (subject.maps.empty()) return fail("the kernel does not show what it has mapped");
  std::array<int, 2> ends = {-1, -1};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) return fail("no pipe: " + ErrnoText(errno));
  const UniqueFd write_end(ends[1]);
  UniqueFd read_end(ends[0]);
  const pid_t self = getpid();
  const pid_t child = fork();
  if (child == 0) RunChild(write_end.get(), self, subject);
  if (child < 0) return fail("no process: " + ErrnoText(errno));
  run->child = UniqueFd(PidfdOpen(child));
  run->pipe.assign(read_end.Release());
  run->timer.expires_after(kLimit);
  run->timer.async_wait([run](const asio::error_code& error) {
    if (!error) Finish(*run, "its files could not be read within 500 ms");
  });
  Read(run);
}

void FrameHelper::Read(std::shared_ptr<Run> run) {
  run->pipe.async_read_some(asio::buffer(run->buffer),
                            [run](const asio::error_code& error, size_t bytes) {
                              if (!run->done) return;
                              run->bytes.append(run->buffer.data(), bytes);
                              if (!error && run->bytes.size() <= kMaxAnswerBytes) return Read(run);
                              Finish(*run, run->bytes.empty() || run->bytes.size() > kMaxAnswerBytes
                                               ? "the process that reads them ended"
                                               : "");
                            });
}

// Ends the child and calls the callback. `problem` is empty if the answer is complete.
void FrameHelper::Finish(Run& run, const std::string& problem) {
  if (!run.done) return;
  const Done done = std::exchange(run.done, nullptr);
  if (run.child.valid()) PidfdSendSignal(run.child.get(), SIGKILL);
  run.timer.cancel();
  run.pipe.close();
  pb::ProcessStacks frames;
  if (!problem.empty() || !frames.ParseFromString(run.bytes)) {
    frames.Clear();
    frames.set_no_native(problem.empty() ? "the process that reads them failed" : problem);
  }
  done(std::move(frames));
}

}  // namespace dslaunch
