#include "agent/supervisor/orphan_sweep.h"

#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <set>
#include <string>
#include <system_error>
#include <thread>

#include "agent/supervisor/cgroup.h"
#include "agent/supervisor/serving_process.h"
#include "base/os/process_tree.h"
#include "proto/contract/worker_env.h"

namespace dslaunch {
namespace {

constexpr milliseconds kLookEvery{20};

std::filesystem::path ProgramOf(const std::string& process) {
  std::error_code error;
  return std::filesystem::read_symlink("/proc/" + process + "/exe", error);
}

// Removes from `found` the ranks of the job's other nodes on this machine, which are the processes
// in the session of a living supervisor. A supervisor with the job's variable was started by a
// rank, so it does not count.
void RemoveRanksOfOtherNodes(const Orphans& orphans, std::vector<ProcessInfo>& found) {
  const std::filesystem::path program = ProgramOf("self");
  std::set<pid_t> sessions;  // sessions of the job's other nodes
  for (const ProcessInfo& info : found) sessions.insert(info.session);
  sessions.erase(orphans.session);
  for (const ProcessInfo& info : found) sessions.erase(info.id.pid);
  std::erase_if(sessions, [&](pid_t session) {
    return program.empty() || ProgramOf(std::to_string(session)) != program;
  });
  std::erase_if(found, [&](const ProcessInfo& info) { return sessions.contains(info.session); });
}

std::vector<ProcessInfo> FindOrphans(const Orphans& orphans) {
  std::vector<ProcessInfo> found = ProcessesWithVariable(kJobIdVariable, orphans.job_id);
  RemoveRanksOfOtherNodes(orphans, found);
  const auto add = [&found](const ProcessInfo& info) {
    if (std::ranges::find(found, info.id, &ProcessInfo::id) == found.end()) found.push_back(info);
  };
  if (!orphans.groups.empty()) {
    for (const ProcessInfo& info : AllProcesses()) {
      // A recycled group number belongs to a group in another session, so that group is skipped.
      if (info.ended || info.session != orphans.session) continue;
      if (std::ranges::find(orphans.groups, info.group) != orphans.groups.end()) add(info);
    }
  }
  if (!orphans.cgroup.empty()) std::ranges::for_each(CgroupProcesses(orphans.cgroup), add);
  std::erase_if(found, [](const ProcessInfo& info) { return info.id.pid == getpid(); });
  return found;
}

bool Lives(const ProcessInfo& known) {
  const auto now = ReadProcess(known.id.pid);
  return now && now->id == known.id && !now->ended;
}

// Returns whether a process was started in a worker's session. Such processes outlive the workers,
// which died with their supervisor.
bool IsOfRanks(const ProcessInfo& info, const Orphans& orphans) {
  return IsOfRanks(info, orphans.session, orphans.groups);
}

LeftCount Count(const std::vector<ProcessInfo>& found, const Orphans& orphans) {
  LeftCount left;
  for (const ProcessInfo& info : found) ++(IsOfRanks(info, orphans) ? left.ranks : left.apart);
  left.serves = left.ranks == 0 && std::ranges::any_of(found, [](const ProcessInfo& info) {
                  return Serves(info.id.pid);
                });
  return left;
}

void Signal(const std::vector<ProcessInfo>& found, const Orphans& orphans, KillTargets targets,
            int signal) {
  for (const ProcessInfo& info : found) {
    if (targets == KillTargets::kAll || IsOfRanks(info, orphans)) SignalProcess(info.id, signal);
  }
}

}  // namespace

LeftProcesses SweepOrphans(const Orphans& orphans, const GracefulKillOptions& options) {
  GracefulKillState state;
  std::vector<ProcessInfo> found = FindOrphans(orphans);
  while (true) {
    const GracefulKillDecision decision =
        DecideGracefulKill(state, Clock::now(), Count(found, orphans), options);
    state = decision.next;
    switch (decision.action) {
      case GracefulKillAction::kNone:
        break;
      case GracefulKillAction::kSignal:
        Signal(found, orphans, decision.targets, SIGTERM);
        Signal(found, orphans, decision.targets, SIGCONT);
        break;
      case GracefulKillAction::kKill:
        if (!orphans.cgroup.empty() && decision.targets == KillTargets::kAll)
          KillCgroup(orphans.cgroup);
        Signal(found, orphans, decision.targets, SIGKILL);
        break;
      case GracefulKillAction::kDone:
      case GracefulKillAction::kGiveUp:
        if (!orphans.cgroup.empty()) RemoveCgroup(orphans.cgroup);
        return DescribeLeft(found);
    }
    // All of /proc is searched again only when the processes of the ranks, or all processes, have
    // ended, or when a step is due. Until then, it is enough to check the known processes, which is
    // cheaper.
    const bool has_ranks = std::ranges::any_of(
        found, [&](const ProcessInfo& info) { return IsOfRanks(info, orphans); });
    const auto is_waited_for = [&](const ProcessInfo& info) {
      return Lives(info) && (!has_ranks || IsOfRanks(info, orphans));
    };
    const Deadline wake = Deadline::At(*decision.wake);
    while (!wake.Expired() && std::ranges::any_of(found, is_waited_for)) {
      std::this_thread::sleep_for(std::min(kLookEvery, wake.Left()));
    }
    found = FindOrphans(orphans);
  }
}

}  // namespace dslaunch
