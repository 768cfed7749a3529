#include "agent/core/agent_core.h"

#include <algorithm>
#include <csignal>
#include <utility>
#include <variant>

#include "base/exit_code.h"
#include "base/overloaded.h"
#include "base/text/signal_name.h"
#include "proto/wire/cause.h"

namespace dslaunch {
namespace {

constexpr milliseconds kDefaultTick(500);
// Longest time without a turn of the loop, as a multiple of dead_ms. Disks may be slow, so it is
// long.
constexpr int kLoopPatience = 5;

pb::Cause StepSignalCause(const NodeJob& job, int signal_number) {
  pb::Cause cause = job.Cause(pb::Cause::INTERRUPTED, ExitCode::kInterrupted,
                              "Slurm sent " + SignalName(signal_number) + " to the job's step on " +
                                  job.node_name() + "; scontrol show job says why");
  cause.set_exit_code(ExitCodeForSignal(signal_number));
  cause.set_signal(signal_number);
  return cause;
}

}  // namespace

AgentCore::AgentCore(const AgentCoreOptions& options, BootClock::time_point now)
    : plant_early_drained_(options.plant_early_drained),
      front_end_(job_, out_, now),
      workers_(job_, out_),
      mpi_(job_, workers_, out_),
      majority_(job_, workers_, out_, options.plant_majority, now),
      membership_(job_, workers_, front_end_, majority_, out_),
      teardown_(job_, workers_, front_end_, membership_, out_),
      goodput_(job_, workers_) {}

AgentActions AgentCore::Take(Clock::time_point now) {
  Settle(now);
  majority_.UpdateLeaseCounts();
  goodput_.Update(now);
  for (AgentAction& action : actions_) goodput_.AddTo(action, now);
  return std::exchange(actions_, {});
}

void AgentCore::Settle(Clock::time_point now) {
  for (AgentOutbox::Step& step : out_.Take()) {
    if (auto* action = std::get_if<AgentAction>(&step)) {
      actions_.push_back(std::move(*action));
    } else {
      CarryOut(std::move(std::get<AgentRequest>(step)), now);
      Settle(now);
    }
  }
}

void AgentCore::CarryOut(AgentRequest request, Clock::time_point now) {
  std::visit(
      Overloaded{
          [&](const agent_request::NotifyStop& notify) { teardown_.NotifyStop(notify.cause); },
          [&](const agent_request::Stop& stop) { Stop(stop.cause, stop.kill_now); },
          [&](const agent_request::EndRendezvous&) { teardown_.OnRendezvousLost(now); },
          [&](const agent_request::LeaveToOthers&) { membership_.LeaveToOthers(); },
          [&](const agent_request::QuitIfIdle&) { teardown_.QuitIfIdle(now); },
          [&](const agent_request::DrainRanks&) { DrainRanks(); },
          [&](const agent_request::Elect& elect) {
            out_.Log(CauseText(elect.cause) + "; the nodes elect another host of the rendezvous");
            membership_.LeaveForElection();
            majority_.Elect(membership_.host(), elect.cause, now);
            DrainRanks();
          },
          [&](const agent_request::Follow& follow) { membership_.OnFailover(follow.next, now); },
          [&](agent_request::EndRank& end) {
            mpi_.Amend(end.exited);
            workers_.OnEnded(end.exited, end.noticed);
          },
          [&](const agent_request::CountStatus& count) {
            goodput_.OnStatus(count.local_rank, count.line, now);
          }},
      request);
}

// --- Events of the front end ---

void AgentCore::OnPrepared() {
  job_.OnPrepared();
  membership_.OnPrepared();
  front_end_.OnPrepared();
  majority_.OnPrepared();
  const pb::Timeouts& timeouts = job_.timeouts();
  pb::SupervisorRequest request;
  pb::Configure& configure = *request.mutable_configure();
  configure.set_job_id(job_.spec().job_id());
  configure.set_grace_ms(timeouts.grace_ms());
  configure.set_teardown_ms(timeouts.teardown_ms());
  configure.set_agent_dead_ms(timeouts.dead_ms());
  configure.set_stop_signal(job_.spec().stop_signal());
  out_.SendToSupervisor(std::move(request));
  const auto patience =
      std::max(kLoopPatience * milliseconds(timeouts.dead_ms()), milliseconds(timeouts.lease_ms()));
  // Usually the rendezvous gets every second tick as a heartbeat. If other nodes wait so briefly
  // for heartbeats that a late heartbeat would count as silence, it gets every tick.
  const bool is_tight = 2 * timeouts.heartbeat_ms() > timeouts.suspect_ms();
  out_.Do(agent_action::StartHeart{
      .interval = tick_interval(), .patience = patience, .ticks_per_beat = is_tight ? 1u : 2u});
}

void AgentCore::OnStop(pb::Cause cause, bool kill_now) {
  if (cause.kind() == pb::Cause::NODE_LEFT) {
    cause.set_node_index(job_.node_index());
    membership_.LeaveToOthers();
  }
  teardown_.NotifyStop(cause);
  Stop(cause, kill_now);
}

void AgentCore::OnDetach(const std::string& socket_path, Clock::time_point now,
                         BootClock::time_point boot_now) {
  if (front_end_.detached()) return;
  front_end_.OnDetach(socket_path, now);
  majority_.OnDetach(now, boot_now);
  // After a detachment no front end can choose another rendezvous, so the nodes elect it.
  if (membership_.awaits_failover() && majority_.MayElect())
    out_.Ask(agent_request::Elect{membership_.lost_by()});
}

pb::AgentAlive AgentCore::Alive(BootClock::time_point now) {
  pb::AgentAlive alive;
  if (const auto left = front_end_.LeaseLeft(now))
    alive.set_lease_left_ms(static_cast<uint32_t>(left->count()));
  if (const auto left = majority_.LeaseLeft(now))
    alive.set_majority_lease_left_ms(static_cast<uint32_t>(left->count()));
  return alive;
}

// --- Events of the rendezvous ---

void AgentCore::OnRendezvousMessage(const pb::RendezvousMessage& message, Clock::time_point now,
                                    BootClock::time_point boot_now) {
  membership_.OnMessage(now);
  majority_.OnMessage(message.attempt());
  switch (message.message_case()) {
    case pb::RendezvousMessage::kAssignment:
      return OnAssignment(message, boot_now);
    case pb::RendezvousMessage::kPeers:
      return majority_.OnPeers(message.peers());
    case pb::RendezvousMessage::kDrain:
      return OnDrain(message.attempt(), message.drain());
    case pb::RendezvousMessage::kInspect:
      return workers_.OnInspect(message.inspect(), now);
    case pb::RendezvousMessage::kNotice:
      return out_.Notify(message.notice().message(), message.notice().standstill());
    case pb::RendezvousMessage::kOutdated:
      return out_.Log("the rendezvous is at attempt " + std::to_string(message.attempt()) +
                      " and ignored '" + message.outdated().what() + "' of attempt " +
                      std::to_string(message.outdated().attempt()));
    case pb::RendezvousMessage::kHeartbeat:
      return goodput_.OnHeartbeat(message.heartbeat());
    case pb::RendezvousMessage::kAllReady: {
      goodput_.OnAllStarted(now);
      pb::NodeEvent event;
      event.mutable_running()->set_attempt(message.attempt());
      return out_.Emit(std::move(event));
    }
    case pb::RendezvousMessage::kStop:
      return Stop(message.stop().cause(), /*kill_now=*/false);
    case pb::RendezvousMessage::kRefused:
      return out_.StopCutOff(message.refused().cause());
    case pb::RendezvousMessage::kEndRank:
      if (message.attempt() == workers_.attempt()) workers_.OnEndRank(message.end_rank().rank());
      return;
    case pb::RendezvousMessage::kCutOff:
      if (membership_.is_host() && majority_.IsNeeded()) return majority_.OnLost();
      return membership_.OnCutOff(message.cut_off().cause(), now);
    case pb::RendezvousMessage::kMpiBegun:
      if (message.attempt() == workers_.attempt()) mpi_.OnBegun(now);
      return;
    case pb::RendezvousMessage::kNoFrontEnd:
      return front_end_.OnUnreachable();
    case pb::RendezvousMessage::kCompleted:
      return teardown_.OnCompleted(message.completed(), now);
    default:
      return;
  }
}

void AgentCore::OnAssignment(const pb::RendezvousMessage& message, BootClock::time_point boot_now) {
  if (!majority_.Admits(message, boot_now) || !workers_.OnAssignment(message)) return;
  majority_.OnRestarts(message.assignment().restart_count());
  mpi_.OnAssignment();
}

void AgentCore::OnDrain(uint64_t attempt, const pb::Drain& drain) {
  if (!workers_.OnDrain(attempt, drain)) return;
  goodput_.OnCause(drain.cause());
  majority_.OnDrain(/*failed=*/!IsSuccess(drain.cause()));
  mpi_.EndHeld();
  workers_.Stop();
  if (plant_early_drained_) workers_.OnReaped();
}

// --- Events of the supervisor and this machine ---

void AgentCore::OnSupervisorEvent(const pb::SupervisorEvent& event, Clock::time_point now) {
  switch (event.event_case()) {
    case pb::SupervisorEvent::kExited:
      if (!mpi_.Holds(event.exited(), now)) out_.Ask(agent_request::EndRank{event.exited(), now});
      return;
    case pb::SupervisorEvent::kAllReaped:
      return OnAllReaped(event.all_reaped().left(), now);
    case pb::SupervisorEvent::kFrontEndGone:
      return front_end_.detached() ? majority_.OnLost() : front_end_.OnGone();
    case pb::SupervisorEvent::kFrontEndConnection:
      return front_end_.OnConnection(event.front_end_connection().is_broken());
    case pb::SupervisorEvent::kStepSignal:
      // Every node of the job gets this signal, and usually the front end too, so only the first
      // report counts.
      if (!job_.prepared() || workers_.stopping()) return;
      return out_.StopJob(StepSignalCause(job_, event.step_signal().signal()));
    default:
      return workers_.OnSupervisorEvent(event, now);
  }
}

void AgentCore::OnSupervisorGone(Clock::time_point now) {
  if (!out_.OnSupervisorGone()) return;
  front_end_.OnSupervisorGone();
  if (!job_.prepared()) return teardown_.QuitIfIdle(now);
  membership_.LeaveToOthers();
  out_.StopJob(job_.Cause(pb::Cause::NODE_LOST, ExitCode::kUnavailable,
                          job_.node_name() + " was lost: its supervisor process was killed"));
  Settle(now);
  // The workers died with their supervisor, but processes that they had started may still run, so
  // these processes are ended.
  out_.Do(agent_action::SweepOrphans{.groups = workers_.ranks().RunningPids(),
                                     .cgroup = workers_.cgroup()});
}

void AgentCore::OnWorkerDescribed(const agent_action::DescribeWorker& asked, WorkerEnd end,
                                  uint64_t round_trip_us, Clock::time_point now) {
  if (!end.note.empty()) out_.Log(end.note);
  mpi_.Amend(end.event);
  workers_.OnDescribed(asked, std::move(end), round_trip_us, now);
}

void AgentCore::OnPortReserved(const Result<uint32_t>& port, const std::string& unfit,
                               Clock::time_point now) {
  if (workers_.phase() != WorkersCore::Phase::kDraining) return;
  workers_.OnDrained();
  if (!unfit.empty()) out_.Log("this node is unfit: " + unfit);
  if (!port.ok()) {
    return out_.StopJob(job_.Cause(pb::Cause::START_FAILED, port.error().code,
                                   job_.node_name() + ": " + port.error().message));
  }
  const bool moves =
      membership_.awaits_failover() || membership_.joins_when_empty() || majority_.is_electing();
  if (moves && !teardown_.left().empty()) {
    out_.OnRendezvousOver();
    return Stop(job_.Cause(pb::Cause::INTERNAL, ExitCode::kTimedOut,
                           job_.node_name() + ": processes are left that could not be ended"),
                /*kill_now=*/false);
  }
  if (membership_.OnRanksEnded(now)) return;
  if (majority_.is_electing()) return majority_.OnRanksEnded();
  pb::AgentMessage message;
  pb::Drained& drained = *message.mutable_drained();
  *drained.mutable_left() = teardown_.left();
  drained.set_master_port(*port);
  drained.set_unfit(unfit);
  out_.SendToRendezvous(std::move(message));
}

void AgentCore::OnAllReaped(const TeardownCore::Left& left, Clock::time_point now) {
  const bool was_stopping = workers_.phase() == WorkersCore::Phase::kStopping;
  teardown_.OnAllReaped(left);
  workers_.OnReaped();
  if (!was_stopping) return;
  if (teardown_.is_cut_off()) front_end_.OnCutOff();
  teardown_.OnTornDown(now);
}

// --- End of ranks and of the job ---

// Ends all ranks, before the next attempt or before the node joins another rendezvous.
void AgentCore::DrainRanks() {
  if (workers_.phase() > WorkersCore::Phase::kDraining) return;
  if (workers_.phase() == WorkersCore::Phase::kDraining) return workers_.BeginDrain();
  mpi_.EndHeld();
  workers_.BeginDrain();
  workers_.Stop();
}

void AgentCore::Stop(const pb::Cause& cause, bool kill_now) {
  if (workers_.stopping() && !kill_now) return;
  teardown_.OnStop(cause, kill_now);
  goodput_.OnCause(cause);
  if (!workers_.stopping()) workers_.BeginStop();
  mpi_.EndHeld();
  // Programs expect Ctrl-C to have the same effect as at a terminal, so they get SIGINT.
  const bool by_ctrl_c = cause.kind() == pb::Cause::INTERRUPTED && cause.signal() == SIGINT;
  workers_.Stop(kill_now, by_ctrl_c && job_.spec().stop_signal() == 0 ? SIGINT : 0);
}

// --- Ticks ---

void AgentCore::OnTick(Clock::time_point now, BootClock::time_point boot_now,
                       Clock::duration late) {
  if (job_.prepared()) membership_.OnTick(now, /*was_late=*/late > kStall);
  Settle(now);
  front_end_.OnTick(now, boot_now);
  Settle(now);
  if (job_.prepared()) {
    if (const auto held = majority_.TakeHeld()) OnAssignment(*held, boot_now);
    majority_.CheckLease(membership_.joined_at(), now, boot_now);
    Settle(now);
    majority_.CheckElection(now);
    Settle(now);
  }
  mpi_.OnTick(now);
  if (goodput_.IsReportDue(now)) {
    pb::NodeEvent event;
    *event.mutable_goodput() = goodput_.Report(now);
    out_.Emit(std::move(event));
  }
  out_.Ask(agent_request::QuitIfIdle{});
}

milliseconds AgentCore::tick_interval() const {
  return job_.prepared() ? milliseconds(job_.timeouts().heartbeat_ms()) / 2 : kDefaultTick;
}

}  // namespace dslaunch
