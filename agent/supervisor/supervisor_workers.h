// The supervisor's worker processes, by local_rank: their pids, groups and status pipes.
// SupervisorCore decides about them.
#pragma once

#include <sys/resource.h>
#include <sys/types.h>

#include <asio/io_context.hpp>
#include <csignal>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "agent/supervisor/supervisor_core.h"
#include "agent/supervisor/supervisor_status.h"
#include "base/subprocess.h"
#include "proto/supervisor.pb.h"

namespace dslaunch {

// What the supervisor changed for itself and the agent, and a worker gets back as it was.
struct InheritedLimits {
  rlimit core = {};
  mode_t umask = 022;
};

// Single-threaded, in the thread that must outlive the workers (they get SIGKILL when it ends).
class SupervisorWorkers {
 public:
  // With StatusBytes: whole lines that a worker has written.
  using OnStatus = std::function<void(const pb::SupervisorEvent&)>;

  SupervisorWorkers(asio::io_context& io, const InheritedLimits& inherited, OnStatus on_status);

  // From now on workers start in this cgroup (agent/supervisor/cgroup.h).
  void StartIn(const std::string& cgroup);

  // Starts a worker in a process group of its own.
  SpawnResult Start(const pb::WorkerSpec& spec, const std::string& cwd);

  // Sends a signal to each worker that runs: to the worker itself, not to what it started.
  void Signal(int signal);

  struct Change {
    uint32_t local_rank = 0;
    WorkerChange change;
  };
  // What waitid() reported of a child; nullopt when it is no worker. The last status lines of one
  // that has ended are passed on before this returns.
  std::optional<Change> OnChild(const siginfo_t& child);

  // The process groups that workers were started in and that may still have members.
  const std::vector<pid_t>& groups() const { return groups_; }

  // Nothing of any worker is left: a recycled group number must not be signalled.
  void ForgetGroups() { groups_.clear(); }

 private:
  struct Worker {
    pid_t pid = -1;  // until it is reaped
    std::unique_ptr<StatusPipe> status;
  };

  SpawnResult Spawn(const pb::WorkerSpec& spec, const std::string& cwd, UniqueFd& status_read);
  bool OomKillsGrew();

  asio::io_context& io_;
  const InheritedLimits inherited_;
  OnStatus on_status_;
  std::map<uint32_t, Worker> workers_;
  std::vector<pid_t> groups_;
  std::string cgroup_;  // empty: none
  UniqueFd cgroup_fd_;
  uint64_t oom_kills_ = 0;  // as last looked
};

}  // namespace dslaunch
