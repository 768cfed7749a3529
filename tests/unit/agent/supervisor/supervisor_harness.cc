#include "tests/unit/agent/supervisor/supervisor_harness.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <sstream>

#include "agent/supervisor/supervisor.h"

namespace dslaunch {
namespace {

// Sends the agent's pid and copies of its two descriptors to the test, over the socket `handoff`.
void HandOver(int handoff, int grpc_fd, int control_fd) {
  pid_t pid = getpid();
  const int fds[2] = {grpc_fd, control_fd};
  iovec data = {&pid, sizeof pid};
  alignas(cmsghdr) char buffer[CMSG_SPACE(sizeof fds)] = {};
  msghdr message = {};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = buffer;
  message.msg_controllen = sizeof buffer;
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof fds);
  std::memcpy(CMSG_DATA(header), fds, sizeof fds);
  sendmsg(handoff, &message, 0);
}

// Unmounts the cgroup file system in a private mount namespace, so that other processes keep it.
void HideCgroup() {
  if (unshare(CLONE_NEWNS) != 0) return;
  mount("", "/", nullptr, MS_REC | MS_PRIVATE, nullptr);
  umount2("/sys/fs/cgroup", MNT_DETACH);
}

bool Readable(int fd, Deadline deadline) {
  pollfd poll_fd = {fd, POLLIN, 0};
  return poll(&poll_fd, 1, deadline.PollMs()) > 0;
}

std::string WorkingDirectory(pid_t pid) {
  std::error_code error;
  return std::filesystem::read_symlink("/proc/" + std::to_string(pid) + "/cwd", error);
}

std::string ReadLine(int fd, milliseconds limit) {
  const Deadline deadline = Deadline::After(limit);
  std::string line;
  char byte = 0;
  while (byte != '\n' && Readable(fd, deadline) && read(fd, &byte, 1) == 1) line.push_back(byte);
  return line;
}

}  // namespace

SupervisorHarness::SupervisorHarness(const Setup& setup) {
  int to_supervisor[2], from_supervisor[2], handoff[2];
  if (setup.one_socket) {
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, to_supervisor), 0);
    from_supervisor[0] = fcntl(to_supervisor[1], F_DUPFD_CLOEXEC, 3);
    from_supervisor[1] = fcntl(to_supervisor[0], F_DUPFD_CLOEXEC, 3);
  } else {
    EXPECT_EQ(pipe2(to_supervisor, O_CLOEXEC), 0);
    EXPECT_EQ(pipe2(from_supervisor, O_CLOEXEC), 0);
  }
  EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, handoff), 0);
  supervisor_ = fork();
  if (supervisor_ == 0) RunChild(setup, to_supervisor[0], from_supervisor[1], handoff[1]);
  close(to_supervisor[0]);
  close(from_supervisor[1]);
  close(handoff[1]);
  in_.Reset(to_supervisor[1]);
  out_.Reset(from_supervisor[0]);
  handoff_.Reset(handoff[0]);
  hello_ = ReadLine(out(), milliseconds(10'000));
  if (!setup.run_agent) ReceiveAgent();
}

void SupervisorHarness::RunChild(const Setup& setup, int in, int out, int handoff) {
  const int err = open((dir_ / "supervisor.stderr").c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
  dup2(in, 0);
  dup2(out, 1);
  dup2(err, 2);
  const int kept = dup2(handoff, 3);
  close_range(4, ~0u, 0);
  umask(022);
  if (setup.without_cgroup) HideCgroup();
  SupervisorOptions options{
      .nonce = "nonce", .build_id = "build", .resumable = setup.resumable, .run_agent = {}};
  if (setup.run_agent) {
    options.run_agent = [run = setup.run_agent](int grpc_fd, int control_fd, int) {
      return run(grpc_fd, control_fd);
    };
  } else {
    options.run_agent = [kept](int grpc_fd, int control_fd, int) {
      HandOver(kept, grpc_fd, control_fd);
      unsigned char code = 0;
      while (read(kept, &code, 1) < 0 && errno == EINTR) {
      }
      return static_cast<int>(code);
    };
  }
  _exit(RunSupervisor(options));
}

void SupervisorHarness::ReceiveAgent() {
  int fds[2];
  iovec data = {&agent_, sizeof agent_};
  alignas(cmsghdr) char buffer[CMSG_SPACE(sizeof fds)] = {};
  msghdr message = {};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = buffer;
  message.msg_controllen = sizeof buffer;
  ASSERT_TRUE(Readable(handoff_.get(), Deadline::After(milliseconds(10'000))));
  ASSERT_EQ(recvmsg(handoff_.get(), &message, MSG_CMSG_CLOEXEC),
            static_cast<ssize_t>(sizeof agent_));
  ASSERT_NE(CMSG_FIRSTHDR(&message), nullptr);
  std::memcpy(fds, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fds);
  grpc_.Reset(fds[0]);
  control_.Reset(fds[1]);
}

SupervisorHarness::~SupervisorHarness() {
  if (testing::Test::HasFailure()) std::cerr << "the supervisor's stderr:\n" << StderrText();
  if (!end_) {
    kill(supervisor_, SIGKILL);
    waitpid(supervisor_, nullptr, 0);
    if (agent_ > 0) kill(agent_, SIGKILL);
  }
  for (const pid_t pid : PidsOfJob(job_id_)) kill(pid, SIGKILL);
  const pid_t child = std::atoi(ReadFile(dir_ / "child").c_str());
  if (child > 0 && WorkingDirectory(child) == dir_.path()) kill(child, SIGKILL);
}

void SupervisorHarness::CloseIn() {
  shutdown(in_.get(), SHUT_WR);
  in_.Reset();
}

void SupervisorHarness::Send(const pb::SupervisorRequest& request) {
  const std::string payload = request.SerializeAsString();
  const auto n = static_cast<uint32_t>(payload.size());
  std::string frame = {static_cast<char>(n), static_cast<char>(n >> 8), static_cast<char>(n >> 16),
                       static_cast<char>(n >> 24)};
  frame += payload;
  EXPECT_EQ(send(control_.get(), frame.data(), frame.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(frame.size()));
}

void SupervisorHarness::Configure(milliseconds grace, milliseconds agent_dead,
                                  milliseconds teardown) {
  pb::SupervisorRequest request;
  request.mutable_configure()->set_job_id(job_id_);
  request.mutable_configure()->set_grace_ms(static_cast<uint32_t>(grace.count()));
  request.mutable_configure()->set_teardown_ms(static_cast<uint32_t>(teardown.count()));
  request.mutable_configure()->set_agent_dead_ms(static_cast<uint32_t>(agent_dead.count()));
  Send(request);
}

pb::WorkerSpec SupervisorHarness::Worker(uint32_t rank,
                                         const std::vector<std::string>& args) const {
  pb::WorkerSpec spec;
  spec.set_local_rank(rank);
  spec.set_rank(rank);
  spec.add_argv(DSLAUNCH_FAKE_WORKER);
  for (const std::string& arg : args) spec.add_argv(arg);
  spec.add_env("RANK=" + std::to_string(rank));
  spec.add_env("DSLAUNCH_JOB_ID=" + job_id_);
  spec.set_stdout_path(LogPath(rank, "stdout"));
  spec.set_stderr_path(LogPath(rank, "stderr"));
  return spec;
}

pb::WorkerSpec SupervisorHarness::ShellWorker(uint32_t rank, const std::string& script) const {
  pb::WorkerSpec spec = Worker(rank, {});
  spec.clear_argv();
  for (const char* arg : {"/bin/sh", "-c", script.c_str()}) spec.add_argv(arg);
  spec.add_env("PATH=/usr/bin:/bin");
  return spec;
}

pb::WorkerSpec SupervisorHarness::WorkerWithChild(uint32_t rank, bool own_session) const {
  return ShellWorker(rank, std::string(own_session ? "setsid " : "") +
                               "env -i sh -c 'trap \"\" TERM; echo $$ > child.new; "
                               "mv child.new child; exec sleep 600' & exec sleep 600");
}

std::string SupervisorHarness::LogPath(uint32_t rank, const std::string& stream) const {
  return dir_ / (std::to_string(rank) + "." + stream);
}

void SupervisorHarness::SpawnWorkers(const std::vector<pb::WorkerSpec>& workers) {
  pb::SupervisorRequest request;
  request.mutable_spawn()->set_cwd(dir_.path());
  for (const pb::WorkerSpec& worker : workers) *request.mutable_spawn()->add_workers() = worker;
  Send(request);
}

std::vector<pid_t> SupervisorHarness::StartWorkers(size_t count, std::vector<std::string> args) {
  args.insert(args.end(), {"--pid-file", dir_.path()});
  std::vector<pb::WorkerSpec> specs;
  for (uint32_t rank = 0; rank < count; ++rank) specs.push_back(Worker(rank, args));
  SpawnWorkers(specs);
  std::vector<pid_t> pids;
  for (uint32_t rank = 0; rank < count; ++rank) {
    pids.push_back(AwaitPidFile(dir_ / ("rank_" + std::to_string(rank) + ".pid")));
    EXPECT_GT(pids.back(), 0);
  }
  return pids;
}

void SupervisorHarness::Stop(bool kill_now) {
  pb::SupervisorRequest request;
  request.mutable_stop()->set_kill_now(kill_now);
  Send(request);
}

std::optional<pb::SupervisorEvent> SupervisorHarness::Next(milliseconds limit) {
  const Deadline deadline = Deadline::After(limit);
  while (true) {
    if (partial_.size() >= 4) {
      uint32_t n = 0;
      std::memcpy(&n, partial_.data(), sizeof n);
      if (partial_.size() >= 4 + n) {
        pb::SupervisorEvent event;
        EXPECT_TRUE(event.ParseFromArray(partial_.data() + 4, static_cast<int>(n)));
        partial_.erase(0, 4 + n);
        if (event.has_workers_cgroup()) cgroup_ = event.workers_cgroup().folder();
        return event;
      }
    }
    if (!Readable(control_.get(), deadline)) return std::nullopt;
    char chunk[65536];
    const ssize_t got = read(control_.get(), chunk, sizeof chunk);
    if (got <= 0) return std::nullopt;
    partial_.append(chunk, static_cast<size_t>(got));
  }
}

std::optional<pb::SupervisorEvent> SupervisorHarness::NextOutcome(milliseconds limit) {
  const Deadline deadline = Deadline::After(limit);
  while (auto event = Next(deadline.Left())) {
    if (!event->has_status() && !event->has_spawned() && !event->has_workers_cgroup()) return event;
  }
  return std::nullopt;
}

std::optional<pb::AllReaped> SupervisorHarness::NextReaped(milliseconds limit) {
  const Deadline deadline = Deadline::After(limit);
  while (auto event = Next(deadline.Left())) {
    if (event->has_all_reaped()) return event->all_reaped();
  }
  return std::nullopt;
}

pid_t SupervisorHarness::FindWatchdog() const {
  const std::string supervisor = std::to_string(supervisor_);
  std::istringstream children(
      ReadFile("/proc/" + supervisor + "/task/" + supervisor + "/children"));
  for (pid_t pid = 0; children >> pid;) {
    if (ReadFile("/proc/" + std::to_string(pid) + "/comm") == "dslaunch-watch\n") return pid;
  }
  return 0;
}

pid_t SupervisorHarness::AwaitWatchdog() const {
  pid_t watchdog = 0;
  EXPECT_TRUE(WaitFor(milliseconds(5'000), [&] { return (watchdog = FindWatchdog()) > 0; }));
  return watchdog;
}

void SupervisorHarness::EndAgent(int exit_code) {
  grpc_.Reset();
  control_.Reset();
  const auto code = static_cast<unsigned char>(exit_code);
  EXPECT_EQ(write(handoff_.get(), &code, 1), 1);
}

std::optional<int> SupervisorHarness::WaitEnd(milliseconds limit) {
  int status = 0;
  if (!WaitFor(limit, [&] { return waitpid(supervisor_, &status, WNOHANG) == supervisor_; }))
    return std::nullopt;
  end_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return end_;
}

bool SupervisorHarness::IsEmpty(milliseconds limit) const {
  return WaitFor(limit, [this] { return PidsOfJob(job_id_).empty(); });
}

std::string ReadUntilEnd(int fd, milliseconds limit) {
  const Deadline deadline = Deadline::After(limit);
  std::string all;
  char chunk[65536];
  while (Readable(fd, deadline)) {
    const ssize_t got = read(fd, chunk, sizeof chunk);
    if (got <= 0) break;
    all.append(chunk, static_cast<size_t>(got));
  }
  return all;
}

}  // namespace dslaunch
