// Declares the actions of SupervisorCore and SupervisorWorkersCore. supervisor.cc, tests and the
// simulator carry them out.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "agent/supervisor/graceful_kill.h"
#include "proto/supervisor.pb.h"

namespace dslaunch {

// The actions are carried out in order. If an action has a result, the function that its comment
// names receives the result. The actions that this function returns are carried out before the next
// action (except after StartWorker).
namespace supervisor_action {

struct SendToAgent {
  pb::SupervisorEvent event;
};
// An action that creates the workers' cgroup. SupervisorWorkersCore::OnCgroup() receives the
// result.
struct MakeCgroup {
  std::string job_id;
};
struct StartWatchdog {
  std::string job_id;
  GracefulKillOptions graceful_kill;
};
// An action that starts a worker in a process group of its own. SupervisorWorkersCore::OnStarted()
// or OnStartFailed() is called when the result is known; many workers start concurrently, however
// long each start takes.
struct StartWorker {
  pb::WorkerSpec spec;
  std::shared_ptr<const pb::SpawnWorkers> shared;  // settings that all workers share
};
// An action that sends a signal to each running worker, or to one of them, but not to its children.
struct SignalWorkers {
  int signal = 0;
  std::optional<uint32_t> local_rank = {};  // worker to signal; nullopt for all workers
};
// An action that reaps ended children and then counts the processes that are left: descendants of
// the supervisor and members of the workers' cgroup, except agent and watchdog.
// SupervisorCore::OnLeft() receives the result.
struct CountLeft {};
// An action that sends `signal`, then SIGCONT, to the counted processes that are in `targets`.
struct SignalLeft {
  int signal = 0;
  KillTargets targets = KillTargets::kAll;
};
// An action that sends SIGKILL to the counted processes that are in `targets`.
struct KillLeft {
  KillTargets targets = KillTargets::kAll;
};
// An action that describes the processes that CountLeft counts. SupervisorCore::OnLeftListed()
// receives the result.
struct ListLeft {};
// An action that removes the workers' cgroup and their group numbers, which may be reused, because
// no process of the workers is left.
struct ForgetWorkers {};
// An action that makes the agent read end of file from the front end.
struct CloseInbound {};
// An action that makes the supervisor reject a returning front end from now on.
struct RefuseFrontEnd {};
struct KillAgent {};  // sends SIGKILL to the agent
struct Print {        // prints a line to stderr
  std::string line;
};
// The last action: prints this line to stderr, unless it is empty, and exits with this code.
struct Finish {
  int exit_code = 0;
  std::string line;
};

}  // namespace supervisor_action

struct SupervisorAction {
  std::variant<supervisor_action::SendToAgent, supervisor_action::MakeCgroup,
               supervisor_action::StartWatchdog, supervisor_action::StartWorker,
               supervisor_action::SignalWorkers, supervisor_action::CountLeft,
               supervisor_action::SignalLeft, supervisor_action::KillLeft,
               supervisor_action::ListLeft, supervisor_action::ForgetWorkers,
               supervisor_action::CloseInbound, supervisor_action::RefuseFrontEnd,
               supervisor_action::KillAgent, supervisor_action::Print, supervisor_action::Finish>
      what;
  const char* reason = "";  // reason for the log; a static string
};
using SupervisorActions = std::vector<SupervisorAction>;

}  // namespace dslaunch
