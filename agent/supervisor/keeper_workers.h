// The workers as the keeper holds them: started, watched and reported, by local_rank.
#pragma once

#include <sys/resource.h>
#include <sys/types.h>

#include <asio/io_context.hpp>
#include <csignal>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "agent/supervisor/keeper_status.h"
#include "agent/supervisor/worker_table.h"
#include "base/subprocess.h"
#include "proto/keeper.pb.h"

namespace dslaunch {

// What the keeper changed for itself and the agent, and a worker gets back as it was.
struct InheritedLimits {
  rlimit core = {};
  mode_t umask = 022;
};

// Single-threaded, in the thread that must outlive the workers (they get SIGKILL when it ends).
class KeeperWorkers {
 public:
  using Report = std::function<void(const pb::KeeperEvent&)>;

  KeeperWorkers(asio::io_context& io, const InheritedLimits& inherited, Report report);

  // From now on workers start in this cgroup (agent/supervisor/cgroup.h).
  void StartIn(const std::string& cgroup);

  // Starts each worker in a process group of its own and reports WorkerSpawned or SpawnFailed for
  // each.
  void Spawn(const pb::SpawnWorkers& request);

  // Refuses all of them, because the node is being emptied.
  void Refuse(const pb::SpawnWorkers& request);

  // Sends a signal to each worker that runs: to the worker itself, not to what it started.
  void Signal(int signal);

  // The kill ladder begins: exits from now on are an effect, not a cause; but a SIGKILL is one only
  // once the ladder sends it.
  void LadderBegan();
  void LadderKills();

  // What waitid() told about a child. One that is no worker is ignored.
  void OnChild(const siginfo_t& child);

  // The process groups that workers were started in and that may still have members.
  const std::vector<pid_t>& groups() const { return groups_; }

  // Nothing of any worker is left: a recycled group number must not be signalled.
  void ForgetGroups() { groups_.clear(); }

 private:
  struct Worker {
    pid_t pid = -1;
    WorkerState state = WorkerState::kPending;
    std::unique_ptr<StatusPipe> status;
  };

  void SpawnOne(const pb::WorkerSpec& spec, const std::string& cwd);
  SpawnResult Start(const pb::WorkerSpec& spec, const std::string& cwd, UniqueFd& status_read);
  void ReportFailure(uint32_t local_rank, const SpawnFailure& failure);
  void Step(uint32_t local_rank, Worker& worker, WorkerEvent event, const siginfo_t& child);
  bool OomKillsGrew();

  asio::io_context& io_;
  const InheritedLimits inherited_;
  Report report_;
  std::map<uint32_t, Worker> workers_;
  std::vector<pid_t> groups_;
  std::string cgroup_;  // empty: none
  UniqueFd cgroup_fd_;
  uint64_t oom_kills_ = 0;  // as last looked
};

}  // namespace dslaunch
