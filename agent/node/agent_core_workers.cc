// A node's ranks in the current attempt, from their assignment to their end.
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <utility>

#include "agent/node/agent_core.h"
#include "base/errno_text.h"
#include "base/os/subprocess.h"
#include "base/text/signal_name.h"
#include "proto/contract/status_line.h"
#include "proto/wire/cause.h"
#include "rendezvous/majority.h"

namespace dslaunch {

// A message that was sent before this process or its machine was suspended may be read after the
// lease is over, and Lease::Left then leaves time for renewals that are still unread: ranks that
// run need it, but none may start in it.
void AgentCore::OnAssignment(const pb::RendezvousMessage& message, BootClock::time_point boot_now) {
  held_.reset();
  if (NeedsMajority() &&
      boot_now - majority_lease_.renewed() >= MajorityLease(prepare_.job().timeouts())) {
    held_ = message;
    return;
  }
  if (phase_ != Phase::kIdle || message.attempt() <= attempt_) {
    return Log("ranks for attempt " + std::to_string(message.attempt()) +
               " are refused: this node is in attempt " + std::to_string(attempt_));
  }
  phase_ = Phase::kWorking;
  attempt_ = message.attempt();
  restarts_ = message.assignment().restart_count();
  mpi_aborts_.clear();
  mpi_begun_at_.reset();
  late_for_mpi_is_reported_ = false;
  mpi_joined_.clear();
  mpi_faults_.clear();
  held_workers_.clear();
  workers_ = AttemptWorkers(attempt_, message.assignment(), {});
  Do(agent_action::PlanWorkers{.attempt = attempt_, .assignment = message.assignment()});
}

AgentActions AgentCore::OnWorkersPlanned(uint64_t attempt, Result<pb::SpawnWorkers> specs) {
  if (phase_ != Phase::kWorking || attempt != attempt_) return {};
  if (!specs.ok()) {
    StopJob(OwnCause(pb::Cause::START_FAILED, specs.error().code, specs.error().message));
    return Take();
  }
  const pb::Assignment assignment = workers_.assignment();
  workers_ = AttemptWorkers(attempt_, assignment, *specs);
  program_ = specs->argv(0);
  Log("attempt " + std::to_string(attempt_) + ": starting " +
      std::to_string(specs->workers_size()) + " of " + std::to_string(assignment.world_size()) +
      " ranks from rank " + std::to_string(assignment.first_rank()) + ", MASTER_ADDR " +
      assignment.master_addr() + ", MASTER_PORT " + std::to_string(assignment.master_port()));
  pb::SupervisorRequest request;
  *request.mutable_spawn() = *std::move(specs);
  SendToSupervisor(std::move(request));
  return Take();
}

// This node's part of the attempt ends, or what it would have been: a spare drains too, so that the
// next attempt finds every node empty.
void AgentCore::OnDrain(uint64_t attempt, const pb::Drain& drain) {
  if (phase_ > Phase::kWorking || attempt < attempt_) return;
  phase_ = Phase::kDraining;
  attempt_ = attempt;
  held_.reset();
  const bool failed = drain.cause().kind() != pb::Cause::NONE;
  if (failed) ++restarts_;
  Log("attempt " + std::to_string(attempt) +
      " ends: " + (failed ? CauseText(drain.cause()) + "; " : "") + drain.reason());
  pb::NodeEvent event;
  pb::Restarting& restarting = *event.mutable_restarting();
  restarting.set_attempt(attempt);
  *restarting.mutable_cause() = drain.cause();
  restarting.set_reason(drain.reason());
  restarting.set_delay_ms(drain.delay_ms());
  Emit(std::move(event));
  StopWorkers();
  if (options_.plant_early_drained) Drained();
}

void AgentCore::OnInspect(const pb::Inspect& inspect) {
  for (const AttemptWorker& worker : workers_.all()) {
    if (worker.ended || std::ranges::count(inspect.ranks(), worker.rank) == 0) continue;
    Do(agent_action::InspectWorker{.pid = worker.pid,
                                   .text = Describe(worker) + " " + inspect.reason()});
  }
}

AgentActions AgentCore::OnSupervisorEvent(const pb::SupervisorEvent& event, Clock::time_point now) {
  switch (event.event_case()) {
    case pb::SupervisorEvent::kSpawned:
      OnSpawned(event.spawned());
      break;
    case pb::SupervisorEvent::kSpawnFailed:
      OnSpawnFailed(event.spawn_failed());
      break;
    case pb::SupervisorEvent::kExited:
      OnWorkerExited(event.exited(), now);
      break;
    case pb::SupervisorEvent::kStopped:
      OnWorkerStopped(event.stopped());
      break;
    case pb::SupervisorEvent::kStatus:
      OnStatus(event.status(), now);
      break;
    case pb::SupervisorEvent::kAllReaped:
      OnAllReaped(event.all_reaped().left(), now);
      break;
    case pb::SupervisorEvent::kFrontEndGone:
      detached() ? LoseMajority(now) : OnFrontEndGone(now);
      break;
    case pb::SupervisorEvent::kFrontEndConnection:
      OnFrontEndConnection(event.front_end_connection().is_broken());
      break;
    case pb::SupervisorEvent::kStepSignal:
      OnStepSignal(event.step_signal().signal());
      break;
    case pb::SupervisorEvent::kWorkersCgroup:
      OnWorkersCgroup(event.workers_cgroup());
      break;
    default:
      break;
  }
  return Take();
}

void AgentCore::OnWorkersCgroup(const pb::WorkersCgroup& cgroup) {
  workers_cgroup_ = cgroup.folder();
  Log(workers_cgroup_.empty() ? "no cgroup for the workers: " + cgroup.none_because()
                              : "the workers' cgroup is " + workers_cgroup_);
}

void AgentCore::OnSpawned(const pb::WorkerSpawned& spawned) {
  const AttemptWorker* worker = workers_.Find(spawned.local_rank());
  if (worker == nullptr) return;
  Do(agent_action::FollowRank{.attempt = workers_.attempt(),
                              .rank = worker->rank,
                              .local_rank = worker->local_rank,
                              .folder = worker->folder});
  if (!workers_.OnSpawned(spawned.local_rank(), spawned.pid())) return;
  if (phase_ != Phase::kWorking) return;  // those that started last are being ended
  pb::NodeEvent event;
  *event.mutable_started() = workers_.Started();
  Emit(std::move(event));
  pb::AgentMessage message;
  message.mutable_ready();
  SendToRendezvous(std::move(message));
}

bool AgentCore::MayRanksRun() const {
  return phase_ == Phase::kWorking ? !workers_.AllEnded() : !workers_.RunningPids().empty();
}

// Ranks trust any listener at MASTER_PORT as if it were rank 0.
AgentActions AgentCore::OnMasterPortTaken(uint32_t user) {
  if (phase_ != Phase::kWorking) return {};
  StopJob(OwnCause(pb::Cause::START_FAILED, ExitCode::kUnavailable,
                   node_name() + ": a program of another user (uid " + std::to_string(user) +
                       ") listens at port " + std::to_string(workers_.assignment().master_port()) +
                       ", MASTER_PORT, before rank 0 does; choose another with --master_port, or "
                       "leave it out to take a free one"));
  return Take();
}

namespace {

std::string StartFailureText(const pb::SpawnFailed& failed) {
  if (failed.error_number() == ETIMEDOUT) {
    return "it did not start within " + std::to_string(kSpawnTimeout.count() / 1000) +
           " s; the file system that it is on may not answer";
  }
  return ErrnoText(failed.error_number());
}

// The limits and disks of a machine are no fault of dslaunch's.
ExitCode StartFailureCode(const pb::SpawnFailed& failed) {
  if (failed.step() == "execve") return ExitCode::kCannotExecute;
  switch (failed.error_number()) {
    case EMFILE:
    case ENFILE:
    case EAGAIN:
    case ENOMEM:
      return ExitCode::kUnavailable;
    case ENOSPC:
    case EDQUOT:
    case EROFS:
    case EACCES:
    case EIO:
      return ExitCode::kIo;
    case ETIMEDOUT:
      return ExitCode::kTimedOut;
    default:
      return ExitCode::kInternal;
  }
}

}  // namespace

void AgentCore::OnSpawnFailed(const pb::SpawnFailed& failed) {
  const AttemptWorker* worker = workers_.Find(failed.local_rank());
  if (worker == nullptr) return;
  workers_.OnEnded(failed.local_rank(), std::nullopt);
  if (phase_ != Phase::kWorking) return;  // refused, because the node is being emptied
  pb::Cause cause = OwnCause(pb::Cause::START_FAILED, StartFailureCode(failed),
                             node_name() + ": cannot start " + program_ + " (" + failed.step() +
                                 "): " + StartFailureText(failed));
  cause.set_attempt(attempt_);
  cause.set_rank(static_cast<int>(worker->rank));
  cause.set_local_rank(static_cast<int>(worker->local_rank));
  StopJob(cause);
}

void AgentCore::OnWorkerExited(const pb::WorkerExited& exited, Clock::time_point now) {
  if (!AsksMpiServer(exited)) return EndWorker(exited, now);
  held_workers_[exited.local_rank()] = {exited, now};
  Do(agent_action::AskMpiServer{exited.local_rank()});
}

void AgentCore::EndWorker(pb::WorkerExited exited, Clock::time_point now) {
  const AttemptWorker* worker = workers_.Find(exited.local_rank());
  if (worker == nullptr) return;
  if (const auto aborted = mpi_aborts_.find(worker->rank); aborted != mpi_aborts_.end()) {
    exited.set_exit_code(std::max(1, aborted->second & 0xff));
    exited.set_signal(0);
  }
  if (mpi_faults_.contains(worker->rank)) exited.set_exit_code(1);
  Log(Describe(*worker) + (exited.signal() != 0
                               ? " was ended by " + SignalName(exited.signal())
                               : " exited with " + std::to_string(exited.exit_code())));
  const bool all_well = workers_.OnEnded(
      exited.local_rank(),
      exited.signal() == 0 ? std::optional<int>(exited.exit_code()) : std::nullopt);
  const bool tolerated = exited.signal() != 0 && !exited.stopping() && worker->loss_tolerated;
  Do(agent_action::DescribeWorker{.exited = exited,
                                  .noticed = now,
                                  .all_ended_well = all_well,
                                  .tolerated = tolerated,
                                  .given_up = tolerated && worker->given_up});
}

AgentActions AgentCore::OnWorkerDescribed(const agent_action::DescribeWorker& asked, WorkerEnd end,
                                          uint64_t round_trip_us, Clock::time_point now) {
  if (!end.note.empty()) Log(end.note);
  if (const auto aborted = mpi_aborts_.find(end.event.rank());
      aborted != mpi_aborts_.end() && end.event.evidence().empty())
    end.event.set_evidence("it called MPI_Abort with code " + std::to_string(aborted->second));
  if (const auto fault = mpi_faults_.find(end.event.rank()); fault != mpi_faults_.end()) {
    end.event.set_victim(false);
    end.event.set_evidence(fault->second);
  }
  if (asked.given_up)
    end.event.set_evidence("it did not answer, and the others went on without it");
  if (end.failed) {
    pb::AgentMessage message;
    pb::WorkerFailed& failed = *message.mutable_worker_failed();
    *failed.mutable_cause() = CauseOfFailure(end.event, prepare_.node_index());
    failed.set_age_us(static_cast<uint64_t>(
        std::chrono::duration_cast<std::chrono::microseconds>(now - asked.noticed).count()));
    failed.set_rtt_us(round_trip_us);
    failed.set_tolerated(asked.tolerated);
    SendToRendezvous(std::move(message));
  }
  if (asked.all_ended_well && (!end.failed || asked.tolerated) && phase_ == Phase::kWorking) {
    pb::AgentMessage message;
    message.mutable_finished();
    SendToRendezvous(std::move(message));
  }
  end.event.set_tolerated(asked.tolerated);
  pb::NodeEvent event;
  *event.mutable_worker_ended() = std::move(end.event);
  Emit(std::move(event));
  return Take();
}

void AgentCore::OnWorkerStopped(const pb::WorkerStopped& stopped) {
  const AttemptWorker* worker = workers_.Find(stopped.local_rank());
  if (worker == nullptr) return;
  Notify(Describe(*worker) +
         (stopped.signal() == 0
              ? " continues"
              : " was stopped by " + SignalName(stopped.signal()) + "; the others wait for it" +
                    (worker->loss_tolerated ? " for some time, and then go on without it"
                                            : " until it is continued (kill -CONT)")));
}

void AgentCore::OnReportedLost(uint32_t rank) {
  if (phase_ != Phase::kWorking || !workers_.OnReportedLost(rank)) return;
  pb::AgentMessage message;
  message.mutable_rank_lost()->set_rank(rank);
  SendToRendezvous(std::move(message));
}

void AgentCore::OnEndRank(uint32_t rank) {
  const AttemptWorker* const worker = workers_.FindRank(rank);
  if (phase_ != Phase::kWorking || worker == nullptr || worker->ended) return;
  if (!worker->loss_tolerated) {
    return Log("other ranks go on without " + Describe(*worker) +
               ", which has not said that they may; it is left alone");
  }
  if (!workers_.OnGivenUp(worker->local_rank)) return;
  Log("other ranks go on without " + Describe(*worker) + "; it is killed");
  KillWorker(*worker);
}

void AgentCore::KillWorker(const AttemptWorker& worker) {
  pb::SupervisorRequest request;
  request.mutable_signal()->set_signal(SIGKILL);
  request.mutable_signal()->set_local_rank(worker.local_rank);
  SendToSupervisor(std::move(request));
}

void AgentCore::OnStatus(const pb::StatusBytes& status, Clock::time_point now) {
  const AttemptWorker* worker = workers_.Find(status.local_rank());
  if (worker == nullptr) return;
  std::string_view rest = status.data();
  while (!rest.empty()) {
    const size_t end = rest.find('\n');
    const std::string_view line = rest.substr(0, end);
    rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
    const std::optional<StatusLine> parsed = StatusLine::Parse(line);
    if (!parsed) continue;
    if (parsed->event == StatusLine::Event::kLost) {
      OnReportedLost(parsed->lost_rank);
      continue;
    }
    workers_.OnStatus(status.local_rank(), *parsed, now);
    Do(agent_action::EmitStatus{.rank = worker->rank,
                                .line = std::string(line),
                                .is_evaluation = parsed->event == StatusLine::Event::kEval});
  }
}

}  // namespace dslaunch
