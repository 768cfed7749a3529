#include "agent/orphan_sweep.h"

#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <thread>

#include "agent/process_tree.h"

namespace dslaunch {
namespace {

constexpr milliseconds kLookEvery{20};

std::vector<ProcessInfo> FindOrphans(std::string_view job_id, std::span<const pid_t> groups) {
  std::vector<ProcessInfo> found = ProcessesOfJob(job_id);
  const pid_t session = getsid(0);
  if (!groups.empty()) {
    for (const ProcessInfo& info : AllProcesses()) {
      // A group whose number was recycled is in another session.
      if (info.ended || info.session != session) continue;
      if (std::ranges::find(groups, info.group) == groups.end()) continue;
      if (std::ranges::find(found, info.id, &ProcessInfo::id) == found.end()) found.push_back(info);
    }
  }
  std::erase_if(found, [](const ProcessInfo& info) { return info.id.pid == getpid(); });
  return found;
}

bool Lives(const ProcessInfo& known) {
  const auto now = ReadProcess(known.id.pid);
  return now && now->id == known.id && !now->ended;
}

void SignalAll(const std::vector<ProcessInfo>& targets, int signal) {
  for (const ProcessInfo& target : targets) SignalProcess(target.id, signal);
}

}  // namespace

std::vector<pid_t> SweepOrphans(std::string_view job_id, std::span<const pid_t> groups,
                                const LadderOptions& options) {
  LadderState state;
  std::vector<ProcessInfo> found = FindOrphans(job_id, groups);
  while (true) {
    const LadderDecision decision = DecideLadder(state, Clock::now(), found.size(), options);
    state = decision.next;
    switch (decision.action) {
      case LadderAction::kNone:
        break;
      case LadderAction::kTerm:
        SignalAll(found, SIGTERM);
        SignalAll(found, SIGCONT);
        break;
      case LadderAction::kKill:
        SignalAll(found, SIGKILL);
        break;
      case LadderAction::kDone:
      case LadderAction::kGiveUp: {
        std::vector<pid_t> left;
        for (const ProcessInfo& info : found) left.push_back(info.id.pid);
        return left;
      }
    }
    // Between the ladder's rungs only the known ones are looked at; the whole of /proc is searched
    // again when they are gone or a rung is due.
    const Deadline wake = Deadline::At(*decision.wake);
    while (!wake.Expired() && std::ranges::any_of(found, Lives)) {
      std::this_thread::sleep_for(std::min(kLookEvery, wake.Left()));
    }
    found = FindOrphans(job_id, groups);
  }
}

}  // namespace dslaunch
