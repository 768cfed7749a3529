// Manages the supervisor's worker processes by local rank: their pids, groups and status pipes.
// SupervisorCore makes the decisions about them.
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

#include "agent/supervisor/memory_files.h"
#include "agent/supervisor/supervisor_status.h"
#include "agent/supervisor/supervisor_workers_core.h"
#include "base/os/subprocess.h"
#include "proto/supervisor.pb.h"

namespace dslaunch {

// The worker processes of a node. Workers get SIGKILL when the thread that started them ends, so
// that thread must outlive them. Single-threaded.
class SupervisorWorkers {
 public:
  struct Callbacks {
    // Receives StatusBytes, which contain whole lines that a worker has written.
    std::function<void(const pb::SupervisorEvent&)> on_status;
    // Receives the result of each spawn that Start() began, once for each spawn.
    std::function<void(uint32_t local_rank, const SpawnResult&)> on_start;
  };

  // `sockets` is a socket over which the agent sends the sockets for workers with takes_store_fd.
  SupervisorWorkers(asio::io_context& io, UniqueFd sockets, Callbacks callbacks);

  // Makes all workers start in this cgroup from now on (agent/supervisor/cgroup.h).
  void StartIn(const std::string& cgroup);

  // Begins to start a worker in a new process group, without waiting for another start or for a
  // disk. Returns the process, or an error if there is none. Calls on_start later, when the worker
  // has executed its program or has failed to do so, but not after an error. `shared` contains the
  // settings that all workers of a start have in common; its `workers` are not read.
  SpawnResult Start(const pb::WorkerSpec& spec, const pb::SpawnWorkers& shared);

  // Sends a signal to each running worker, but not to its children. If `only` is set, sends the
  // signal to that worker alone.
  void Signal(int signal, std::optional<uint32_t> only);

  struct Change {
    uint32_t local_rank = 0;
    WorkerChange change;
  };
  // Handles a result of waitid(). Returns nullopt if the child is not a worker that has started. If
  // a worker has ended, first passes on its last status lines, and on_start if that is pending.
  std::optional<Change> OnChild(const siginfo_t& child);

  // Returns the process of a worker that has executed its program and still runs; nullopt
  // otherwise.
  std::optional<pid_t> PidOf(uint32_t local_rank) const;

  // Returns the process groups in which workers were started and which may still have members.
  const std::vector<pid_t>& groups() const { return groups_; }

  // Removes all group numbers. A recycled group number must not be signalled, so call this when no
  // process of any worker is left.
  void ForgetGroups() { groups_.clear(); }

 private:
  // A worker that has not executed its program yet.
  struct Starting {
    Starting(asio::io_context& io, Spawning begun, UniqueFd status);
    ~Starting() { outcome.release(); }

    Spawning spawning;
    UniqueFd status_read;
    // Descriptor of `spawning`, which is released before destruction.
    asio::posix::stream_descriptor outcome;
    asio::steady_timer limit;
  };
  struct Worker {
    pid_t pid = -1;  // pid of the worker until it is reaped; -1 otherwise
    // State of the start; nullptr once the program was executed.
    std::shared_ptr<Starting> starting;
    std::unique_ptr<StatusReader> status;
  };

  void AwaitStart(uint32_t local_rank, const std::shared_ptr<Starting>& starting);
  void FinishStart(uint32_t local_rank, const SpawnResult& result);
  bool OomKillsGrew();

  asio::io_context& io_;
  const UniqueFd sockets_;
  const Callbacks callbacks_;
  std::map<uint32_t, Worker> workers_;
  MemoryFiles memory_files_;
  std::vector<pid_t> groups_;
  std::string cgroup_;  // folder of the workers' cgroup; empty without a cgroup
  UniqueFd cgroup_fd_;
  uint64_t oom_kills_ = 0;  // number of out-of-memory kills at the last check
};

}  // namespace dslaunch
