#include "agent/supervisor/supervisor_workers_core.h"

#include <algorithm>
#include <cerrno>
#include <memory>
#include <utility>

namespace dslaunch {
namespace {

namespace action = supervisor_action;

SupervisorAction ReportExit(uint32_t local_rank, const WorkerChange& change, bool stopping) {
  pb::SupervisorEvent event;
  pb::WorkerExited& exited = *event.mutable_exited();
  exited.set_local_rank(local_rank);
  exited.set_exit_code(change.exit_code);
  exited.set_signal(change.signal);
  exited.set_core_dumped(change.core_dumped);
  exited.set_stopping(stopping);
  exited.set_out_of_memory(change.out_of_memory);
  return {action::SendToAgent{std::move(event)},
          stopping ? "a worker was ended" : "a worker ended by itself"};
}

SupervisorAction ReportStop(uint32_t local_rank, int signal, const char* reason) {
  pb::SupervisorEvent event;
  event.mutable_stopped()->set_local_rank(local_rank);
  event.mutable_stopped()->set_signal(signal);
  return {action::SendToAgent{std::move(event)}, reason};
}

SupervisorAction ReportStartFailure(uint32_t local_rank, const SpawnFailure& failure,
                                    const char* reason) {
  pb::SupervisorEvent event;
  pb::SpawnFailed& failed = *event.mutable_spawn_failed();
  failed.set_local_rank(local_rank);
  failed.set_error_number(failure.error_number);
  failed.set_step(failure.step);
  return {action::SendToAgent{std::move(event)}, reason};
}

}  // namespace

void SupervisorWorkersCore::Configure(const pb::Configure& configure) {
  job_id_ = configure.job_id();
  options_.grace = milliseconds(configure.grace_ms());
  options_.teardown = milliseconds(configure.teardown_ms());
  if (configure.stop_signal() != 0) stop_signal_ = configure.stop_signal();
}

// --- Starts of workers ---

SupervisorActions SupervisorWorkersCore::OnSpawn(pb::SpawnWorkers spawn, bool is_refused) {
  SupervisorActions actions;
  if (stopping() || is_refused) {
    for (const pb::WorkerSpec& spec : spawn.workers()) {
      actions.push_back(ReportStartFailure(spec.local_rank(),
                                           {ECANCELED, "start while the node is being stopped"},
                                           "nothing starts on a node that is being torn down"));
    }
    return actions;
  }
  // A job without workers must not pay for the cgroup, so it is created now.
  if (!has_cgroup_) actions.push_back({action::MakeCgroup{job_id_}, "the workers have no cgroup"});
  if (!std::exchange(watchdog_started_, true))
    actions.push_back({action::StartWatchdog{job_id_, options_}, "the first workers start"});
  auto workers = std::move(*spawn.mutable_workers());
  const auto shared = std::make_shared<const pb::SpawnWorkers>(std::move(spawn));
  for (pb::WorkerSpec& spec : workers) {
    const uint32_t local_rank = spec.local_rank();
    const auto [worker, is_new] = workers_.try_emplace(local_rank, WorkerState::kPending);
    if (!is_new && worker->second != WorkerState::kEnded) {
      actions.push_back(ReportStartFailure(local_rank,
                                           {EEXIST, "start a local rank that runs already"},
                                           "a local rank has one process"));
      continue;
    }
    worker->second = WorkerState::kPending;
    actions.push_back({action::StartWorker{std::move(spec), shared}, "the agent asks for it"});
  }
  return actions;
}

SupervisorActions SupervisorWorkersCore::OnCgroup(const Result<std::string>& folder) {
  has_cgroup_ = folder.ok();
  pb::SupervisorEvent event;
  if (folder)
    event.mutable_workers_cgroup()->set_folder(*folder);
  else
    event.mutable_workers_cgroup()->set_none_because(folder.error().message);
  return {{action::SendToAgent{std::move(event)}, "where the workers start"}};
}

SupervisorActions SupervisorWorkersCore::OnStarted(uint32_t local_rank, pid_t pid) {
  if (Step(local_rank, WorkerEvent::kSpawned) != WorkerReport::kSpawned) return {};
  pb::SupervisorEvent event;
  event.mutable_spawned()->set_local_rank(local_rank);
  event.mutable_spawned()->set_pid(pid);
  return {{action::SendToAgent{std::move(event)}, "a worker was started"}};
}

SupervisorActions SupervisorWorkersCore::OnStartFailed(uint32_t local_rank,
                                                       const SpawnFailure& failure) {
  if (Step(local_rank, WorkerEvent::kSpawnFailed) != WorkerReport::kSpawnFailed) return {};
  return {ReportStartFailure(local_rank, failure, "a worker could not be started")};
}

// --- Changes of workers ---

SupervisorActions SupervisorWorkersCore::OnChange(uint32_t local_rank, const WorkerChange& change) {
  if (!workers_.contains(local_rank)) return {};
  switch (Step(local_rank, change.event)) {
    case WorkerReport::kExited:
      return {ReportExit(local_rank, change, /*stopping=*/false)};
    case WorkerReport::kExitedStopping:
      return {ReportExit(local_rank, change, /*stopping=*/true)};
    case WorkerReport::kStopped:
      return {ReportStop(local_rank, change.signal, "a worker was stopped")};
    case WorkerReport::kContinued:
      return {ReportStop(local_rank, 0, "a worker continues")};
    case WorkerReport::kNone:
    case WorkerReport::kSpawned:
    case WorkerReport::kSpawnFailed:
      break;
  }
  return {};
}

WorkerReport SupervisorWorkersCore::Step(uint32_t local_rank, WorkerEvent event) {
  WorkerState& state = workers_[local_rank];
  const Transition transition = NextTransition(state, event);
  state = transition.next;
  return transition.report;
}

// --- Graceful kill of the workers ---

void SupervisorWorkersCore::OnStop(const pb::StopWorkers& stop) {
  stop_requested_ = true;
  BeginKill(stop.signal() == 0 ? stop_signal_ : stop.signal());
  kill_->kill_now = kill_->kill_now || stop.kill_now();
}

void SupervisorWorkersCore::BeginKill(int first_signal) {
  if (stopping()) return;
  kill_ = {.first_signal = first_signal};
  StepAll(WorkerEvent::kGracefulKill);
}

void SupervisorWorkersCore::StepAll(WorkerEvent event) {
  for (auto& [local_rank, state] : workers_) state = NextTransition(state, event).next;
}

bool SupervisorWorkersCore::Expires(Clock::time_point now) {
  if (!wake_ || now < *wake_) return false;
  wake_.reset();
  return true;
}

SupervisorActions SupervisorWorkersCore::OnLeft(LeftCount left, Clock::time_point now) {
  if (!stopping()) return {};
  if (plant_early_reaped_ && kill_->begun) left = {};
  kill_->ranks_ended = std::ranges::all_of(workers_, [](const auto& worker) {
    return worker.second == WorkerState::kEnded || worker.second == WorkerState::kPending;
  });
  const GracefulKillDecision decision = DecideGracefulKill(*kill_, now, left, options_);
  kill_ = decision.next;
  wake_ = decision.wake;
  switch (decision.action) {
    case GracefulKillAction::kNone:
      break;
    case GracefulKillAction::kSignal:
      return {{action::SignalLeft{decision.signal, decision.targets}, decision.reason}};
    case GracefulKillAction::kKill:
      StepAll(WorkerEvent::kSigkillFollows);
      return {{action::KillLeft{decision.targets}, decision.reason}};
    case GracefulKillAction::kDone:
      return EndKill({});
    case GracefulKillAction::kGiveUp:
      return {{action::ListLeft{}, decision.reason}};
  }
  return {};
}

SupervisorActions SupervisorWorkersCore::OnLeftListed(const LeftProcesses& left) {
  return stopping() ? EndKill(left) : SupervisorActions();
}

SupervisorActions SupervisorWorkersCore::EndKill(const LeftProcesses& left) {
  kill_.reset();
  wake_.reset();
  gave_up_ = !left.empty();
  SupervisorActions actions;
  if (gave_up_) {
    actions.push_back(
        {action::Print{"these processes did not end after SIGKILL: " + LeftText(left)},
         "something is left"});
  } else {
    // On Linux 6, processes that are started in a cgroup that was killed once die, so another
    // cgroup must be created.
    has_cgroup_ = false;
    actions.push_back({action::ForgetWorkers{}, "nothing is left"});
  }
  if (!std::exchange(stop_requested_, false)) return actions;
  pb::SupervisorEvent event;
  *event.mutable_all_reaped()->mutable_left() = left;
  actions.push_back({action::SendToAgent{std::move(event)}, "the answer to StopWorkers"});
  return actions;
}

}  // namespace dslaunch
