#include "agent/core/workers_core.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <optional>
#include <string_view>
#include <utility>

#include "base/count.h"
#include "base/errno_text.h"
#include "base/os/subprocess.h"
#include "base/text/signal_name.h"
#include "proto/contract/status_line.h"
#include "proto/wire/cause.h"

namespace dslaunch {
namespace {

constexpr uint32_t kMostLooks = 10;  // most looks at a rank for one request

std::string StartFailureText(const pb::SpawnFailed& failed) {
  if (failed.error_number() == ETIMEDOUT) {
    return "it did not start within " + std::to_string(kSpawnTimeout.count() / 1000) +
           " s; the file system that it is on may not answer";
  }
  return ErrnoText(failed.error_number());
}

// Exceeded limits and full disks are faults of the machine, so they are not internal errors.
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

// Returns a text such as "the ranks continue after step 20, from copies in memory; 3 steps are
// repeated".
std::string RestoredText(const StatusLine& line) {
  std::string text = "the ranks continue after step " + std::to_string(line.step) +
                     (line.from_memory ? ", from copies in memory" : ", from the disk");
  if (line.reached_step && *line.reached_step > line.step) {
    const auto repeated = static_cast<size_t>(*line.reached_step - line.step);
    text += "; " + Count(repeated, "step") + (repeated == 1 ? " is" : " are") + " repeated";
  }
  return text;
}

}  // namespace

bool WorkersCore::MayRanksRun() const {
  return is_working() ? !workers_.AllEnded() : !workers_.RunningPids().empty();
}

std::string WorkersCore::Describe(const AttemptWorker& worker) const {
  return "rank " + std::to_string(worker.rank) + " (" + job_.node_name() + ", pid " +
         std::to_string(worker.pid) + ")";
}

// --- Messages of the rendezvous ---

bool WorkersCore::OnAssignment(const pb::RendezvousMessage& message) {
  if (phase_ != Phase::kIdle || message.attempt() <= out_.attempt()) {
    out_.Log("ranks for attempt " + std::to_string(message.attempt()) +
             " are refused: this node is in attempt " + std::to_string(out_.attempt()));
    return false;
  }
  phase_ = Phase::kWorking;
  out_.SetAttempt(message.attempt());
  workers_ = AttemptWorkers(out_.attempt(), message.assignment(), {});
  out_.Do(agent_action::PlanWorkers{.attempt = out_.attempt(), .assignment = message.assignment()});
  return true;
}

bool WorkersCore::OnDrain(uint64_t attempt, const pb::Drain& drain) {
  if (phase_ > Phase::kWorking || attempt < out_.attempt()) return false;
  phase_ = Phase::kDraining;
  check_ = job_.spec().has_node_check() ? Check::kWanted : Check::kNo;
  out_.SetAttempt(attempt);
  const bool failed = !IsSuccess(drain.cause());
  out_.Log("attempt " + std::to_string(attempt) +
           " ends: " + (failed ? CauseText(drain.cause()) + "; " : "") + drain.reason());
  pb::NodeEvent event;
  pb::Restarting& restarting = *event.mutable_restarting();
  restarting.set_attempt(attempt);
  *restarting.mutable_cause() = drain.cause();
  restarting.set_reason(drain.reason());
  restarting.set_delay_ms(drain.delay_ms());
  out_.Emit(std::move(event));
  return true;
}

void WorkersCore::OnInspect(const pb::Inspect& inspect, Clock::time_point now) {
  for (RankPlace& place : workers_.RunningRanks(now)) {
    if (std::ranges::count(inspect.ranks(), place.rank) == 0) continue;
    const std::string text = inspect.reason().empty() ? ""
                                                      : Describe(*workers_.FindRank(place.rank)) +
                                                            " " + inspect.reason();
    out_.Do(agent_action::InspectWorker{.place = std::move(place),
                                        .text = text,
                                        .look = inspect.look(),
                                        .looks = std::clamp(inspect.looks(), 1u, kMostLooks),
                                        .flight = inspect.flight()});
  }
}

void WorkersCore::OnInspected(pb::Inspected inspected) {
  if (!is_working()) return;
  pb::AgentMessage message;
  *message.mutable_inspected() = std::move(inspected);
  out_.SendToRendezvous(std::move(message));
}

void WorkersCore::OnEndRank(uint32_t rank) {
  const AttemptWorker* const worker = workers_.FindRank(rank);
  if (!is_working() || worker == nullptr || worker->ended) return;
  if (!worker->loss_tolerated) {
    return out_.Log("other ranks go on without " + Describe(*worker) +
                    ", which has not said that they may; it is left alone");
  }
  if (!workers_.OnGivenUp(worker->local_rank)) return;
  out_.Log("other ranks go on without " + Describe(*worker) + "; it is killed");
  out_.SendToSupervisor(SignalWorker(worker->local_rank, SIGKILL));
}

// --- Results of actions ---

void WorkersCore::OnPlanned(uint64_t attempt, Result<pb::SpawnWorkers> specs) {
  if (!is_working() || attempt != out_.attempt()) return;
  if (!specs.ok()) {
    return out_.StopJob(
        job_.Cause(pb::Cause::START_FAILED, specs.error().code, specs.error().message));
  }
  const pb::Assignment assignment = workers_.assignment();
  workers_ = AttemptWorkers(out_.attempt(), assignment, *specs);
  program_ = specs->argv(0);
  out_.Log("attempt " + std::to_string(out_.attempt()) + ": starting " +
           std::to_string(specs->workers_size()) + " of " +
           std::to_string(assignment.world_size()) + " ranks from rank " +
           std::to_string(assignment.first_rank()) + ", MASTER_ADDR " + assignment.master_addr() +
           ", MASTER_PORT " + std::to_string(assignment.master_port()));
  pb::SupervisorRequest request;
  *request.mutable_spawn() = *std::move(specs);
  out_.SendToSupervisor(std::move(request));
}

void WorkersCore::OnDescribed(const agent_action::DescribeWorker& asked, WorkerEnd end,
                              uint64_t round_trip_us, Clock::time_point now) {
  if (asked.given_up)
    end.event.set_evidence("it did not answer, and the others went on without it");
  if (end.failed) {
    pb::AgentMessage message;
    pb::WorkerFailed& failed = *message.mutable_worker_failed();
    *failed.mutable_cause() = CauseOfFailure(end.event, job_.node_index());
    failed.set_age_us(static_cast<uint64_t>(
        std::chrono::duration_cast<std::chrono::microseconds>(now - asked.noticed).count()));
    failed.set_rtt_us(round_trip_us);
    failed.set_tolerated(asked.tolerated);
    for (pb::RankProgress& rank : workers_.Progress(now)) *failed.add_ranks() = std::move(rank);
    out_.SendToRendezvous(std::move(message));
  }
  if (asked.all_ended_well && (!end.failed || asked.tolerated) && is_working()) {
    pb::AgentMessage message;
    message.mutable_finished();
    out_.SendToRendezvous(std::move(message));
  }
  end.event.set_tolerated(asked.tolerated);
  pb::NodeEvent event;
  *event.mutable_worker_ended() = std::move(end.event);
  out_.Emit(std::move(event));
}

// Stops the job, because the ranks would use the program that listens at MASTER_PORT as rank 0.
void WorkersCore::OnMasterPortTaken(uint32_t user) {
  if (!is_working()) return;
  out_.StopJob(
      job_.Cause(pb::Cause::START_FAILED, ExitCode::kUnavailable,
                 job_.node_name() + ": a program of another user (uid " + std::to_string(user) +
                     ") listens at port " + std::to_string(workers_.assignment().master_port()) +
                     ", MASTER_PORT, before rank 0 does; choose another with --master_port, or "
                     "leave it out to take a free one"));
}

// --- Events of the supervisor ---

void WorkersCore::OnSupervisorEvent(const pb::SupervisorEvent& event, Clock::time_point now) {
  switch (event.event_case()) {
    case pb::SupervisorEvent::kSpawned:
      return OnSpawned(event.spawned());
    case pb::SupervisorEvent::kSpawnFailed:
      return OnSpawnFailed(event.spawn_failed());
    case pb::SupervisorEvent::kStopped:
      return OnStopped(event.stopped());
    case pb::SupervisorEvent::kStatus:
      return OnStatus(event.status(), now);
    case pb::SupervisorEvent::kWorkersCgroup:
      cgroup_ = event.workers_cgroup().folder();
      return out_.Log(cgroup_.empty()
                          ? "no cgroup for the workers: " + event.workers_cgroup().none_because()
                          : "the workers' cgroup is " + cgroup_);
    default:
      return;
  }
}

void WorkersCore::OnSpawned(const pb::WorkerSpawned& spawned) {
  const AttemptWorker* worker = workers_.Find(spawned.local_rank());
  if (worker == nullptr) return;
  out_.Do(agent_action::FollowRank{.attempt = workers_.attempt(),
                                   .rank = worker->rank,
                                   .local_rank = worker->local_rank,
                                   .folder = worker->folder});
  if (!workers_.OnSpawned(spawned.local_rank(), spawned.pid())) return;
  if (!is_working()) return;  // the last workers started while the node was ending its ranks
  pb::NodeEvent event;
  *event.mutable_started() = workers_.Started();
  out_.Emit(std::move(event));
  pb::AgentMessage message;
  message.mutable_ready();
  out_.SendToRendezvous(std::move(message));
}

void WorkersCore::OnSpawnFailed(const pb::SpawnFailed& failed) {
  const AttemptWorker* worker = workers_.Find(failed.local_rank());
  if (worker == nullptr) return;
  workers_.OnEnded(failed.local_rank(), std::nullopt);
  if (!is_working()) return;  // the start was refused because the node is ending its ranks
  pb::Cause cause = job_.Cause(pb::Cause::START_FAILED, StartFailureCode(failed),
                               job_.node_name() + ": cannot start " + program_ + " (" +
                                   failed.step() + "): " + StartFailureText(failed));
  cause.set_attempt(out_.attempt());
  cause.set_rank(static_cast<int>(worker->rank));
  cause.set_local_rank(static_cast<int>(worker->local_rank));
  out_.StopJob(cause);
}

void WorkersCore::OnStopped(const pb::WorkerStopped& stopped) {
  const AttemptWorker* worker = workers_.Find(stopped.local_rank());
  if (worker == nullptr) return;
  out_.Notify(Describe(*worker) +
              (stopped.signal() == 0
                   ? " continues"
                   : " was stopped by " + SignalName(stopped.signal()) +
                         "; the others wait for it" +
                         (worker->loss_tolerated ? " for some time, and then go on without it"
                                                 : " until it is continued (kill -CONT)")));
}

void WorkersCore::OnReportedLost(uint32_t rank) {
  if (!is_working() || !workers_.OnReportedLost(rank)) return;
  pb::AgentMessage message;
  message.mutable_rank_lost()->set_rank(rank);
  out_.SendToRendezvous(std::move(message));
}

void WorkersCore::OnStatus(const pb::StatusBytes& status, Clock::time_point now) {
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
    out_.Ask(agent_request::CountStatus{status.local_rank(), *parsed});
    if (parsed->event == StatusLine::Event::kRestored && workers_.OnRestored())
      out_.Notify(RestoredText(*parsed));
    // These lines matter only for inspections of the rank and for the goodput, so they are not sent
    // to readers.
    if (parsed->event == StatusLine::Event::kWait || parsed->event == StatusLine::Event::kSave ||
        parsed->event == StatusLine::Event::kSaved || parsed->event == StatusLine::Event::kRestored)
      continue;
    out_.Do(agent_action::EmitStatus{
        .rank = worker->rank, .line = std::string(line), .kind = parsed->kind()});
  }
}

void WorkersCore::OnEnded(const pb::WorkerExited& exited, Clock::time_point noticed) {
  const AttemptWorker* worker = workers_.Find(exited.local_rank());
  if (worker == nullptr) return;
  out_.Log(Describe(*worker) + (exited.signal() != 0
                                    ? " was ended by " + SignalName(exited.signal())
                                    : " exited with " + std::to_string(exited.exit_code())));
  const bool all_well = workers_.OnEnded(
      exited.local_rank(),
      exited.signal() == 0 ? std::optional<int>(exited.exit_code()) : std::nullopt);
  const bool tolerated = exited.signal() != 0 && !exited.stopping() && worker->loss_tolerated;
  out_.Do(agent_action::DescribeWorker{.exited = exited,
                                       .noticed = noticed,
                                       .all_ended_well = all_well,
                                       .tolerated = tolerated,
                                       .given_up = tolerated && worker->given_up});
}

// A node needs a port to offer for the next attempt, so it counts as drained only once it has the
// port.
void WorkersCore::OnReaped() {
  if (phase_ == Phase::kDraining) {
    out_.Do(agent_action::EndRankOutput{.others_follow = true});
    if (check_ == Check::kWanted) check_ = Check::kRuns;
    out_.Do(agent_action::ReservePort{.check = check_ == Check::kRuns});
  } else if (phase_ == Phase::kStopping) {
    phase_ = Phase::kTornDown;
    out_.Do(agent_action::EndRankOutput{.others_follow = false});
  }
}

void WorkersCore::BeginDrain() {
  phase_ = Phase::kDraining;
  if (std::exchange(check_, Check::kNo) == Check::kRuns) out_.Do(agent_action::ReservePort());
}

void WorkersCore::OnSignal(int signal_number) const {
  pb::SupervisorRequest request;
  request.mutable_signal()->set_signal(signal_number);
  out_.SendToSupervisor(std::move(request));
}

void WorkersCore::Stop(bool kill_now, int signal) const {
  pb::SupervisorRequest request;
  request.mutable_stop()->set_kill_now(kill_now);
  request.mutable_stop()->set_signal(signal);
  out_.SendToSupervisor(std::move(request));
}

pb::SupervisorRequest SignalWorker(uint32_t local_rank, int signal) {
  pb::SupervisorRequest request;
  request.mutable_signal()->set_signal(signal);
  request.mutable_signal()->set_local_rank(local_rank);
  return request;
}

}  // namespace dslaunch
