// The actions of SupervisorCore and SupervisorWorkersCore. supervisor.cc, tests and the simulator
// carry them out.
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

// Actions are carried out in order. The answer to an action is passed to the core, and the
// resulting actions are carried out, before the next action (except for StartWorker).
namespace supervisor_action {

struct SendToAgent {
  pb::SupervisorEvent event;
};
// The answer is SupervisorWorkersCore::OnCgroup().
struct MakeCgroup {
  std::string job_id;
};
struct StartWatchdog {
  std::string job_id;
  GracefulKillOptions graceful_kill;
};
// Starts a worker in a process group of its own. The answer is SupervisorWorkersCore::OnStarted()
// or OnStartFailed() when the result is known; many workers start concurrently, however long each
// takes.
struct StartWorker {
  pb::WorkerSpec spec;
  std::shared_ptr<const pb::SpawnWorkers> shared;  // settings that all workers share
};
// Sends a signal to each running worker, or to one of them, but not to its children.
struct SignalWorkers {
  int signal = 0;
  std::optional<uint32_t> local_rank = {};  // nullopt: all
};
// Reaps ended children, then counts the processes left: descendants of the supervisor and members
// of the workers' cgroup, except agent and watchdog. The answer is SupervisorCore::OnLeft().
struct CountLeft {};
// Sends `signal`, then SIGCONT, to the counted processes that are in `targets`.
struct SignalLeft {
  int signal = 0;
  KillTargets targets = KillTargets::kAll;
};
// Sends SIGKILL to the counted processes that are in `targets`.
struct KillLeft {
  KillTargets targets = KillTargets::kAll;
};
// Describes the processes that CountLeft counts. The answer is SupervisorCore::OnLeftListed().
struct ListLeft {};
// No process of the workers is left: removes their cgroup and forgets their group numbers, which
// may be reused.
struct ForgetWorkers {};
// Makes the agent see end of file from the front end.
struct CloseInbound {};
// Rejects a returning front end from now on.
struct RefuseFrontEnd {};
struct KillAgent {};  // sends SIGKILL
struct Print {        // prints to stderr
  std::string line;
};
// The last action: exit with this code, and print this line to stderr unless it is empty.
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
  const char* reason = "";  // a static string
};
using SupervisorActions = std::vector<SupervisorAction>;

}  // namespace dslaunch
