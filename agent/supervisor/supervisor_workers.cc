#include "agent/supervisor/supervisor_workers.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <string>
#include <utility>

#include "agent/supervisor/cgroup.h"
#include "proto/contract/worker_env.h"

namespace dslaunch {
namespace {

// Gives the process back what the supervisor changed, for as long as it lives: a child inherits at
// fork.
class AsInherited {
 public:
  explicit AsInherited(const InheritedLimits& inherited) : umask_(umask(inherited.umask)) {
    getrlimit(RLIMIT_CORE, &core_);
    setrlimit(RLIMIT_CORE, &inherited.core);
  }
  ~AsInherited() {
    setrlimit(RLIMIT_CORE, &core_);
    umask(umask_);
  }
  AsInherited(const AsInherited&) = delete;
  AsInherited& operator=(const AsInherited&) = delete;

 private:
  mode_t umask_;
  rlimit core_ = {};
};

UniqueFd OpenLog(const std::string& path) {
  return UniqueFd(
      open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY, 0600));
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

}  // namespace

SupervisorWorkers::SupervisorWorkers(asio::io_context& io, const InheritedLimits& inherited,
                                     OnStatus on_status)
    : io_(io), inherited_(inherited), on_status_(std::move(on_status)) {}

void SupervisorWorkers::StartIn(const std::string& cgroup) {
  cgroup_ = cgroup;
  cgroup_fd_.Reset(open(cgroup.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  oom_kills_ = CountOomKills(cgroup_).value_or(0);
}

SpawnResult SupervisorWorkers::Start(const pb::WorkerSpec& spec, const std::string& cwd) {
  const uint32_t local_rank = spec.local_rank();
  UniqueFd status_read;
  const SpawnResult result = Spawn(spec, cwd, status_read);
  if (result.pid <= 0) return result;
  groups_.push_back(result.pid);
  Worker& worker = workers_[local_rank];
  worker.pid = result.pid;
  worker.status = std::make_unique<StatusPipe>(
      io_, std::move(status_read), [this, local_rank](std::string lines) {
        pb::SupervisorEvent status;
        status.mutable_status()->set_local_rank(local_rank);
        status.mutable_status()->set_data(std::move(lines));
        on_status_(status);
      });
  return result;
}

SpawnResult SupervisorWorkers::Spawn(const pb::WorkerSpec& spec, const std::string& cwd,
                                     UniqueFd& status_read) {
  if (spec.argv().empty()) return {-1, {EINVAL, "read the worker's argv"}};
  const UniqueFd out = OpenLog(spec.stdout_path());
  if (!out.valid()) return {-1, {errno, "open stdout file"}};
  const UniqueFd err = OpenLog(spec.stderr_path());
  if (!err.valid()) return {-1, {errno, "open stderr file"}};
  int status_pipe[2];
  if (pipe2(status_pipe, O_CLOEXEC) < 0) return {-1, {errno, "open status pipe"}};
  status_read.Reset(status_pipe[0]);
  const UniqueFd status_write(status_pipe[1]);

  SpawnSpec spawn;
  spawn.executable = spec.argv(0);
  spawn.argv.assign(spec.argv().begin(), spec.argv().end());
  spawn.env.assign(spec.env().begin(), spec.env().end());
  spawn.env.push_back(std::string(kStatusFdVariable) + "=" + std::to_string(status_write.get()));
  spawn.cwd = cwd;
  spawn.stdout_fd = out.get();
  spawn.stderr_fd = err.get();
  spawn.pass_fd = status_write.get();
  spawn.own_group = true;
  spawn.cgroup_fd = cgroup_fd_.get();
  spawn.parent_death_signal = SIGKILL;
  spawn.cpus.assign(spec.cpus().begin(), spec.cpus().end());
  spawn.memory_nodes.assign(spec.memory_nodes().begin(), spec.memory_nodes().end());
  spawn.memory_preferred = spec.memory_preferred();
  const AsInherited as_inherited(inherited_);
  return dslaunch::Spawn(spawn);
}

void SupervisorWorkers::Signal(int signal) {
  // Not yet reaped, so the pid cannot belong to anyone else.
  for (const auto& [local_rank, worker] : workers_) {
    if (worker.pid > 0) kill(worker.pid, signal);
  }
}

std::optional<SupervisorWorkers::Change> SupervisorWorkers::OnChild(const siginfo_t& child) {
  const auto found = std::ranges::find_if(
      workers_, [&](const auto& worker) { return worker.second.pid == child.si_pid; });
  const std::optional<WorkerEvent> event = EventOf(child);
  if (found == workers_.end() || !event) return std::nullopt;
  auto& [local_rank, worker] = *found;
  Change change = {local_rank, {.event = *event}};
  if (child.si_code == CLD_EXITED)
    change.change.exit_code = child.si_status;
  else
    change.change.signal = child.si_status;
  if (*event != WorkerEvent::kExited && *event != WorkerEvent::kKilled) return change;
  change.change.core_dumped = child.si_code == CLD_DUMPED;
  // Want of memory ends a process by SIGKILL and in no other way.
  change.change.out_of_memory = OomKillsGrew() && change.change.signal == SIGKILL;
  worker.pid = -1;
  worker.status->Drain();
  worker.status.reset();
  return change;
}

bool SupervisorWorkers::OomKillsGrew() {
  if (cgroup_.empty()) return false;
  const uint64_t before = oom_kills_;
  oom_kills_ = CountOomKills(cgroup_).value_or(before);
  return oom_kills_ > before;
}

}  // namespace dslaunch
