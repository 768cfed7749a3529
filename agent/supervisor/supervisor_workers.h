// The supervisor's worker processes, by local_rank: their pids, groups and status pipes.
// SupervisorCore decides about them.
#pragma once

#include <sys/types.h>

#include <asio/io_context.hpp>
#include <asio/posix/stream_descriptor.hpp>
#include <asio/steady_timer.hpp>
#include <csignal>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "agent/supervisor/supervisor_core.h"
#include "agent/supervisor/supervisor_status.h"
#include "base/os/subprocess.h"
#include "proto/supervisor.pb.h"

namespace dslaunch {

// Single-threaded, in the thread that must outlive the workers (they get SIGKILL when it ends).
class SupervisorWorkers {
 public:
  struct Callbacks {
    // With StatusBytes: whole lines that a worker has written.
    std::function<void(const pb::SupervisorEvent&)> on_status;
    // What became of a start, once for each that Start has begun.
    std::function<void(uint32_t local_rank, const SpawnResult&)> on_start;
  };

  // `sockets`: from it comes what workers with takes_store_fd get.
  SupervisorWorkers(asio::io_context& io, UniqueFd sockets, Callbacks callbacks);

  // From now on workers start in this cgroup (agent/supervisor/cgroup.h).
  void StartIn(const std::string& cgroup);

  // Begins to start a worker in a process group of its own. No start waits for another, nor for a
  // disk: on_start follows when the worker has become its program, or could not. The result is the
  // process, or why there is none and on_start does not follow.
  // `shared`: what all workers of a start have in common; its `workers` are not read.
  SpawnResult Start(const pb::WorkerSpec& spec, const pb::SpawnWorkers& shared);

  // Sends a signal to each worker that runs: to the worker itself, not to what it started.
  void Signal(int signal, std::optional<uint32_t> only);

  struct Change {
    uint32_t local_rank = 0;
    WorkerChange change;
  };
  // What waitid() reported of a child; nullopt when it is no worker, or none that was started. The
  // last status lines of one that has ended, and on_start, are passed on before this returns.
  std::optional<Change> OnChild(const siginfo_t& child);

  // The process groups that workers were started in and that may still have members.
  const std::vector<pid_t>& groups() const { return groups_; }

  // Nothing of any worker is left: a recycled group number must not be signalled.
  void ForgetGroups() { groups_.clear(); }

 private:
  // A worker that is not its program yet.
  struct Starting {
    Starting(asio::io_context& io, Spawning begun, UniqueFd status);
    ~Starting() { outcome.release(); }

    Spawning spawning;
    UniqueFd status_read;
    asio::posix::stream_descriptor outcome;  // spawning's, borrowed
    asio::steady_timer limit;
  };
  struct Worker {
    pid_t pid = -1;                      // until it is reaped
    std::shared_ptr<Starting> starting;  // until it is its program
    std::unique_ptr<StatusPipe> status;
  };

  void AwaitStart(uint32_t local_rank, const std::shared_ptr<Starting>& starting);
  void FinishStart(uint32_t local_rank, const SpawnResult& result);
  bool OomKillsGrew();

  asio::io_context& io_;
  const UniqueFd sockets_;
  const Callbacks callbacks_;
  std::map<uint32_t, Worker> workers_;
  std::vector<pid_t> groups_;
  std::string cgroup_;  // empty: none
  UniqueFd cgroup_fd_;
  uint64_t oom_kills_ = 0;  // as last looked
};

}  // namespace dslaunch
