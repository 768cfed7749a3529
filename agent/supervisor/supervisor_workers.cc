#include "agent/supervisor/supervisor_workers.h"

#include <fcntl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <initializer_list>
#include <optional>
#include <string>
#include <utility>

#include "agent/supervisor/cgroup.h"
#include "base/os/pass_fd.h"
#include "base/os/unix_socket.h"
#include "proto/contract/worker_env.h"

namespace dslaunch {
namespace {

constexpr uint32_t kUmaskBits = 0777;

std::vector<std::string> ArgvOf(const pb::WorkerSpec& spec, const pb::SpawnWorkers& shared) {
  std::vector<std::string> argv(shared.argv().begin(), shared.argv().end());
  const size_t at = std::min<size_t>(shared.own_argv_at(), argv.size());
  argv.insert(argv.begin() + static_cast<std::ptrdiff_t>(at), spec.argv().begin(),
              spec.argv().end());
  return argv;
}

// Returns a descriptor for a worker's stdin. Does not wait for a writer of the file.
UniqueFd OpenInput(const std::string& path) {
  UniqueFd fd(open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY));
  if (fd.valid()) fcntl(fd.get(), F_SETFL, 0);
  return fd;
}

// Returns the last socket that the agent has sent; invalid if there is none. Earlier sockets were
// for workers that were not started, so they are closed.
UniqueFd TakeSocket(const UniqueFd& sockets) {
  UniqueFd taken;
  char byte = 0;
  while (sockets && ReceiveWithFd(sockets.get(), &byte, 1, taken) > 0) {
  }
  return taken;
}

// Returns a connection to a socket that listens on this node, without blocking; an invalid
// descriptor with errno set on failure.
UniqueFd ConnectTo(const std::string& path) {
  const std::optional<sockaddr_un> address = UnixAddress(path);
  errno = ENAMETOOLONG;
  if (!address) return UniqueFd();
  UniqueFd connection(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (connection && ConnectUnix(connection.get(), *address) != 0) {
    const int reason = errno;
    connection.Reset();
    errno = reason;
  }
  return connection;
}

// Lets a worker inherit descriptors, and sets its variable `name` to their numbers.
void PassFds(const char* name, std::initializer_list<int> fds, SpawnSpec& spawn) {
  std::string numbers;
  for (const int fd : fds) numbers += (numbers.empty() ? "" : ",") + std::to_string(fd);
  spawn.env.push_back(std::string(name) + "=" + numbers);
  spawn.pass_fds.insert(spawn.pass_fds.end(), fds);
}

std::optional<WorkerEvent> EventOf(const siginfo_t& child) {
  switch (child.si_code) {
    case CLD_EXITED:
    case CLD_DUMPED:
      return WorkerEvent::kExited;
    case CLD_KILLED:
      return child.si_status == SIGKILL ? WorkerEvent::kKilled : WorkerEvent::kExited;
    case CLD_STOPPED:
      return WorkerEvent::kStopped;
    case CLD_CONTINUED:
      return WorkerEvent::kContinued;
    default:
      return std::nullopt;
  }
}

// Sets the folder, CPUs, memory nodes and limits of a worker's process.
void SetUpProcess(const pb::WorkerSpec& spec, const pb::SpawnWorkers& shared, SpawnSpec& spawn) {
  spawn.cwd = shared.cwd();
  spawn.own_group = true;
  spawn.parent_death_signal = SIGKILL;
  spawn.readable_by_parent = true;
  spawn.cpus.assign(spec.cpus().begin(), spec.cpus().end());
  spawn.memory_nodes.assign(spec.memory_nodes().begin(), spec.memory_nodes().end());
  spawn.memory_preferred = spec.memory_preferred();
  spawn.as_before = true;
  if (shared.shell_limits().has_umask())
    spawn.umask = static_cast<mode_t>(shared.shell_limits().umask() & kUmaskBits);
  for (const pb::ResourceLimit& limit : shared.shell_limits().limits())
    spawn.limits.push_back({static_cast<int>(limit.resource()), {limit.soft(), limit.hard()}});
}

}  // namespace

SupervisorWorkers::Starting::Starting(asio::io_context& io, Spawning begun, UniqueFd status)
    : spawning(std::move(begun)),
      status_read(std::move(status)),
      outcome(io, spawning.fd()),
      limit(io, kSpawnTimeout) {}

SupervisorWorkers::SupervisorWorkers(asio::io_context& io, UniqueFd sockets, Callbacks callbacks)
    : io_(io), sockets_(std::move(sockets)), callbacks_(std::move(callbacks)) {
  if (sockets_) fcntl(sockets_.get(), F_SETFL, fcntl(sockets_.get(), F_GETFL) | O_NONBLOCK);
}

void SupervisorWorkers::StartIn(const std::string& cgroup) {
  cgroup_ = cgroup;
  cgroup_fd_.Reset(open(cgroup.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  oom_kills_ = CountOomKills(cgroup_).value_or(0);
}

SpawnResult SupervisorWorkers::Start(const pb::WorkerSpec& spec, const pb::SpawnWorkers& shared) {
  SpawnSpec spawn;
  spawn.argv = ArgvOf(spec, shared);
  if (spawn.argv.empty()) return {-1, {EINVAL, "read the worker's argv"}};
  UniqueFd in;
  if (!spec.stdin_path().empty()) {
    in = OpenInput(spec.stdin_path());
    if (!in.valid()) return {-1, {errno, "open stdin"}};
  }
  UniqueFd pmi;
  if (!spec.pmi_socket().empty()) {
    pmi = ConnectTo(spec.pmi_socket());
    if (!pmi) return {-1, {errno, "connect to the PMI server"}};
  }
  UniqueFd store;
  if (spec.takes_store_fd()) {
    store = TakeSocket(sockets_);
    if (!store) return {-1, {EBADF, "take the socket at MASTER_PORT"}};
  }
  std::optional<std::pair<int, int>> memory;
  if (shared.memory_files()) {
    memory = memory_files_.Of(spec.local_rank());
    if (!memory) return {-1, {errno, "create memory for copies of the rank's state"}};
  }
  spawn.stdin_fd = in.get();
  const bool on_terminal = spec.on_terminal();
  spawn.stdout_file = on_terminal ? spec.stdin_path() : spec.stdout_path();
  spawn.stderr_file = on_terminal ? spec.stdin_path() : spec.stderr_path();
  int status_pipe[2];
  if (pipe2(status_pipe, O_CLOEXEC) < 0) return {-1, {errno, "open status pipe"}};
  UniqueFd status_read(status_pipe[0]);
  const UniqueFd status_write(status_pipe[1]);

  spawn.executable = spawn.argv.front();
  spawn.env.assign(spec.env().begin(), spec.env().end());
  spawn.env.insert(spawn.env.end(), shared.env().begin(), shared.env().end());
  PassFds(kStatusFdVariable, {status_write.get()}, spawn);
  if (store) PassFds(kStoreFdVariable, {store.get()}, spawn);
  if (pmi) PassFds("PMI_FD", {pmi.get()}, spawn);
  if (memory) PassFds(kMemoryFdsVariable, {memory->first, memory->second}, spawn);
  SetUpProcess(spec, shared, spawn);
  spawn.cgroup_fd = cgroup_fd_.get();
  Spawning spawning(spawn);
  const pid_t pid = spawning.pid();
  if (pid <= 0) return *spawning.Result();

  groups_.push_back(pid);
  Worker& worker = workers_[spec.local_rank()];
  worker = Worker();
  worker.pid = pid;
  worker.starting = std::make_shared<Starting>(io_, std::move(spawning), std::move(status_read));
  AwaitStart(spec.local_rank(), worker.starting);
  return {pid, {}};
}

void SupervisorWorkers::AwaitStart(uint32_t local_rank, const std::shared_ptr<Starting>& starting) {
  const std::weak_ptr<Starting> weak = starting;
  starting->outcome.async_wait(
      asio::posix::stream_descriptor::wait_read, [this, local_rank, weak](std::error_code error) {
        const std::shared_ptr<Starting> still = weak.lock();
        if (error || !still) return;
        if (const std::optional<SpawnResult> result = still->spawning.Result())
          FinishStart(local_rank, *result);
        else
          AwaitStart(local_rank, still);
      });
  starting->limit.async_wait([this, local_rank, weak](std::error_code error) {
    const std::shared_ptr<Starting> still = weak.lock();
    if (error || !still) return;
    kill(still->spawning.pid(), SIGKILL);
    FinishStart(local_rank, {-1, {ETIMEDOUT, "execve"}});
  });
}

void SupervisorWorkers::FinishStart(uint32_t local_rank, const SpawnResult& result) {
  Worker& worker = workers_.at(local_rank);
  const std::shared_ptr<Starting> starting = std::exchange(worker.starting, nullptr);
  if (result.pid <= 0) {
    workers_.erase(local_rank);  // the later exit of the worker is not reported
  } else {
    worker.status = std::make_unique<StatusReader>(
        io_, std::move(starting->status_read), [this, local_rank](std::string lines) {
          pb::SupervisorEvent status;
          status.mutable_status()->set_local_rank(local_rank);
          status.mutable_status()->set_data(std::move(lines));
          callbacks_.on_status(status);
        });
  }
  callbacks_.on_start(local_rank, result);
}

void SupervisorWorkers::Signal(int signal, std::optional<uint32_t> only) {
  // A process that is not reaped keeps its pid, so the pid still belongs to the worker.
  for (const auto& [local_rank, worker] : workers_) {
    if (worker.pid > 0 && only.value_or(local_rank) == local_rank) kill(worker.pid, signal);
  }
}

std::optional<SupervisorWorkers::Change> SupervisorWorkers::OnChild(const siginfo_t& child) {
  const auto found = std::ranges::find_if(
      workers_, [&](const auto& worker) { return worker.second.pid == child.si_pid; });
  const std::optional<WorkerEvent> event = EventOf(child);
  if (found == workers_.end() || !event) return std::nullopt;
  const bool ended = event == WorkerEvent::kExited || event == WorkerEvent::kKilled;
  const uint32_t local_rank = found->first;
  Worker& worker = found->second;
  if (ended && worker.starting) {
    const SpawnResult result =
        worker.starting->spawning.Result().value_or(SpawnResult{worker.pid, {}});
    FinishStart(local_rank, result);
    if (result.pid <= 0) return std::nullopt;
  }
  Change change = {local_rank, {.event = *event}};
  if (child.si_code == CLD_EXITED)
    change.change.exit_code = child.si_status;
  else
    change.change.signal = child.si_status;
  if (!ended) return change;
  change.change.core_dumped = child.si_code == CLD_DUMPED;
  change.change.out_of_memory = OomKillsGrew();
  worker.pid = -1;
  worker.status->Drain();
  worker.status.reset();
  return change;
}

std::optional<pid_t> SupervisorWorkers::PidOf(uint32_t local_rank) const {
  const auto found = workers_.find(local_rank);
  if (found == workers_.end() || found->second.pid <= 0 || found->second.starting)
    return std::nullopt;
  return found->second.pid;
}

bool SupervisorWorkers::OomKillsGrew() {
  if (cgroup_.empty()) return false;
  const uint64_t before = oom_kills_;
  oom_kills_ = CountOomKills(cgroup_).value_or(before);
  return oom_kills_ > before;
}

}  // namespace dslaunch
