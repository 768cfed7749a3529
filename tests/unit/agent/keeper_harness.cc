#include "tests/unit/agent/keeper_harness.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <iostream>

#include "agent/keeper.h"

namespace dslaunch {
namespace {

// Sends the agent's pid and copies of its two descriptors to the test.
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

bool Readable(int fd, Deadline deadline) {
  pollfd poll_fd = {fd, POLLIN, 0};
  return poll(&poll_fd, 1, deadline.PollMs()) > 0;
}

std::string ReadLine(int fd, milliseconds limit) {
  const Deadline deadline = Deadline::After(limit);
  std::string line;
  char byte = 0;
  while (byte != '\n' && Readable(fd, deadline) && read(fd, &byte, 1) == 1) line.push_back(byte);
  return line;
}

}  // namespace

KeeperHarness::KeeperHarness(const Setup& setup) {
  int to_keeper[2], from_keeper[2], handoff[2];
  if (setup.one_socket) {
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, to_keeper), 0);
    from_keeper[0] = fcntl(to_keeper[1], F_DUPFD_CLOEXEC, 3);
    from_keeper[1] = fcntl(to_keeper[0], F_DUPFD_CLOEXEC, 3);
  } else {
    EXPECT_EQ(pipe2(to_keeper, O_CLOEXEC), 0);
    EXPECT_EQ(pipe2(from_keeper, O_CLOEXEC), 0);
  }
  EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, handoff), 0);
  keeper_ = fork();
  if (keeper_ == 0) RunChild(setup, to_keeper[0], from_keeper[1], handoff[1]);
  close(to_keeper[0]);
  close(from_keeper[1]);
  close(handoff[1]);
  in_.Reset(to_keeper[1]);
  out_.Reset(from_keeper[0]);
  handoff_.Reset(handoff[0]);
  hello_ = ReadLine(out(), milliseconds(10'000));
  if (!setup.run_agent) ReceiveAgent();
}

void KeeperHarness::RunChild(const Setup& setup, int in, int out, int handoff) {
  const int err = open((dir_ / "keeper.stderr").c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
  dup2(in, 0);
  dup2(out, 1);
  dup2(err, 2);
  const int kept = dup2(handoff, 3);
  close_range(4, ~0u, 0);
  umask(022);
  KeeperOptions options{.nonce = "nonce", .build_id = "build", .run_agent = setup.run_agent};
  if (!options.run_agent) {
    options.run_agent = [kept](int grpc_fd, int control_fd) {
      HandOver(kept, grpc_fd, control_fd);
      unsigned char code = 0;
      while (read(kept, &code, 1) < 0 && errno == EINTR) {
      }
      return static_cast<int>(code);
    };
  }
  _exit(RunKeeper(options));
}

void KeeperHarness::ReceiveAgent() {
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

KeeperHarness::~KeeperHarness() {
  if (testing::Test::HasFailure()) std::cerr << "the keeper's stderr:\n" << StderrText();
  if (!end_) {
    kill(keeper_, SIGKILL);
    waitpid(keeper_, nullptr, 0);
    if (agent_ > 0) kill(agent_, SIGKILL);
  }
  for (const pid_t pid : PidsOfJob(job_id_)) kill(pid, SIGKILL);
}

void KeeperHarness::CloseIn() {
  shutdown(in_.get(), SHUT_WR);
  in_.Reset();
}

void KeeperHarness::Send(const pb::KeeperRequest& request) {
  const std::string payload = request.SerializeAsString();
  const auto n = static_cast<uint32_t>(payload.size());
  std::string frame = {static_cast<char>(n), static_cast<char>(n >> 8), static_cast<char>(n >> 16),
                       static_cast<char>(n >> 24)};
  frame += payload;
  EXPECT_EQ(send(control_.get(), frame.data(), frame.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(frame.size()));
}

void KeeperHarness::Configure(milliseconds grace, milliseconds agent_dead) {
  pb::KeeperRequest request;
  request.mutable_configure()->set_job_id(job_id_);
  request.mutable_configure()->set_grace_ms(static_cast<uint32_t>(grace.count()));
  request.mutable_configure()->set_teardown_ms(5000);
  request.mutable_configure()->set_agent_dead_ms(static_cast<uint32_t>(agent_dead.count()));
  Send(request);
}

pb::WorkerSpec KeeperHarness::Worker(uint32_t rank, const std::vector<std::string>& args) const {
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

std::string KeeperHarness::LogPath(uint32_t rank, const std::string& stream) const {
  return dir_ / (std::to_string(rank) + "." + stream);
}

void KeeperHarness::SpawnWorkers(const std::vector<pb::WorkerSpec>& workers) {
  pb::KeeperRequest request;
  request.mutable_spawn()->set_cwd(dir_.path());
  for (const pb::WorkerSpec& worker : workers) *request.mutable_spawn()->add_workers() = worker;
  Send(request);
}

std::vector<pid_t> KeeperHarness::StartWorkers(size_t count, std::vector<std::string> args) {
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

void KeeperHarness::Stop(bool kill_now) {
  pb::KeeperRequest request;
  request.mutable_stop()->set_kill_now(kill_now);
  Send(request);
}

std::optional<pb::KeeperEvent> KeeperHarness::Next(milliseconds limit) {
  const Deadline deadline = Deadline::After(limit);
  while (true) {
    if (partial_.size() >= 4) {
      uint32_t n = 0;
      std::memcpy(&n, partial_.data(), sizeof n);
      if (partial_.size() >= 4 + n) {
        pb::KeeperEvent event;
        EXPECT_TRUE(event.ParseFromArray(partial_.data() + 4, static_cast<int>(n)));
        partial_.erase(0, 4 + n);
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

std::optional<pb::KeeperEvent> KeeperHarness::NextOutcome(milliseconds limit) {
  const Deadline deadline = Deadline::After(limit);
  while (auto event = Next(deadline.Left())) {
    if (!event->has_status() && !event->has_spawned() && !event->has_workers_cgroup()) return event;
  }
  return std::nullopt;
}

void KeeperHarness::EndAgent(int exit_code) {
  grpc_.Reset();
  control_.Reset();
  const auto code = static_cast<unsigned char>(exit_code);
  EXPECT_EQ(write(handoff_.get(), &code, 1), 1);
}

std::optional<int> KeeperHarness::WaitEnd(milliseconds limit) {
  int status = 0;
  if (!WaitFor(limit, [&] { return waitpid(keeper_, &status, WNOHANG) == keeper_; }))
    return std::nullopt;
  end_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return end_;
}

bool KeeperHarness::IsEmpty(milliseconds limit) const {
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
