#include "tests/unit/agent/supervisor/action_text.h"

#include <csignal>
#include <variant>

#include "base/overloaded.h"

namespace dslaunch {
namespace {

namespace action = supervisor_action;

std::string TextOf(const pb::WorkerExited& exited) {
  return "exited " + std::to_string(exited.local_rank()) + ": " +
         (exited.signal() != 0 ? "signal " + std::to_string(exited.signal())
                               : std::to_string(exited.exit_code())) +
         (exited.core_dumped() ? ", core" : "") +
         (exited.out_of_memory() ? ", out of memory" : "") +
         (exited.stopping() ? ", stopping" : "");
}

std::string TextOf(const pb::SupervisorEvent& event) {
  switch (event.event_case()) {
    case pb::SupervisorEvent::kSpawned:
      return "spawned " + std::to_string(event.spawned().local_rank()) + " as " +
             std::to_string(event.spawned().pid());
    case pb::SupervisorEvent::kSpawnFailed:
      return "spawn failed " + std::to_string(event.spawn_failed().local_rank()) + ": " +
             std::to_string(event.spawn_failed().error_number()) + ", " +
             event.spawn_failed().step();
    case pb::SupervisorEvent::kExited:
      return TextOf(event.exited());
    case pb::SupervisorEvent::kStopped:
      return "stopped " + std::to_string(event.stopped().local_rank()) + ": " +
             std::to_string(event.stopped().signal());
    case pb::SupervisorEvent::kAllReaped:
      return "all reaped, left " + std::to_string(event.all_reaped().left_size());
    case pb::SupervisorEvent::kFrontEndGone:
      return "front end gone";
    case pb::SupervisorEvent::kStepSignal:
      return "step signal " + std::to_string(event.step_signal().signal());
    case pb::SupervisorEvent::kFrontEndConnection:
      return event.front_end_connection().is_broken() ? "connection broke" : "connected again";
    case pb::SupervisorEvent::kWorkersCgroup:
      return "cgroup " + event.workers_cgroup().folder() + event.workers_cgroup().none_because();
    default:
      return "unexpected event " + event.ShortDebugString();
  }
}

std::string To(KillTargets targets) { return targets == KillTargets::kAll ? " to all" : ""; }

}  // namespace

void AddText(const SupervisorAction& done, std::vector<std::string>& texts) {
  const std::string text = std::visit(
      Overloaded{
          [](const action::SendToAgent& send) { return TextOf(send.event); },
          [](const action::StartWatchdog& start) { return "watchdog of " + start.job_id; },
          [](const action::SignalWorkers& send) { return "signal " + std::to_string(send.signal); },
          [](const action::SignalLeft& send) {
            return (send.signal == SIGTERM ? "TERM" : "INT") + To(send.targets);
          },
          [](const action::KillLeft& kill) { return "KILL" + To(kill.targets); },
          [](const action::ForgetWorkers&) { return std::string("forget"); },
          [](const action::CloseInbound&) { return std::string("close inbound"); },
          [](const action::RefuseFrontEnd&) { return std::string("refuse front end"); },
          [](const action::KillAgent&) { return std::string("kill agent"); },
          [](const action::Print& print) { return "print " + print.line; },
          [](const action::Finish& finish) {
            return "finish " + std::to_string(finish.exit_code) +
                   (finish.line.empty() ? "" : ": " + finish.line);
          },
          [](const auto&) { return std::string(); }},
      done.what);
  const bool repeats_kill =
      std::holds_alternative<action::KillLeft>(done.what) && !texts.empty() && texts.back() == text;
  if (!text.empty() && !repeats_kill) texts.push_back(text);
}

LeftProcesses LeftProcessesOf(size_t count) {
  LeftProcesses left;
  for (size_t i = 0; i < count; ++i) {
    pb::LeftProcess& process = *left.Add();
    process.set_pid(static_cast<int32_t>(500 + i));
    process.set_command("python3");
    process.set_state("D");
  }
  return left;
}

}  // namespace dslaunch
