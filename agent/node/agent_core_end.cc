// How a node's part of the job ends, whichever peer is lost, and which peers it notifies.
#include <algorithm>
#include <csignal>
#include <utility>

#include "agent/node/agent_core.h"
#include "base/exit_code.h"
#include "base/text/signal_name.h"
#include "proto/wire/cause.h"
#include "proto/wire/job_result.h"

namespace dslaunch {
namespace {

using LeftProcesses = google::protobuf::RepeatedPtrField<pb::LeftProcess>;

constexpr milliseconds kQuitWait(1000);         // for the other nodes to be notified of our end
constexpr milliseconds kCompletedTravels(500);  // what the rendezvous said last, to the others
constexpr milliseconds kViewersWait(2000);      // for viewers to take their last events

}  // namespace

void AgentCore::StopJob(const pb::Cause& cause, bool kill_now) {
  NotifyStop(cause);
  BeginStop(cause, kill_now);
}

void AgentCore::NotifyStop(const pb::Cause& cause) {
  pb::AgentMessage message;
  *message.mutable_stop()->mutable_cause() = cause;
  SendToRendezvous(std::move(message));
  if (!joined_) completed_ = true;
}

void AgentCore::BeginStop(const pb::Cause& cause, bool kill_now) {
  const bool again = stopping();
  if (again && !kill_now) return;
  if (!again) phase_ = Phase::kStopping;
  Log(std::string(kill_now ? "killing" : "stopping") + ": " + CauseText(cause));
  if (!again) {
    pb::NodeEvent event;
    event.mutable_outcome()->set_attempt(attempt_);
    *event.mutable_outcome()->mutable_cause() = cause;
    outcome_ = cause;
    Emit(std::move(event));
  }
  // Programs expect of Ctrl-C what it does to them at a terminal.
  const bool by_ctrl_c = cause.kind() == pb::Cause::INTERRUPTED && cause.signal() == SIGINT;
  StopWorkers(kill_now, by_ctrl_c && prepare_.job().stop_signal() == 0 ? SIGINT : 0);
}

void AgentCore::OnAllReaped(const LeftProcesses& left, Clock::time_point now) {
  Log(left.empty() ? "every process is reaped" : "processes are left that could not be ended");
  *done_.mutable_left() = left;
  if (phase_ == Phase::kDraining) return Drained();
  if (phase_ == Phase::kStopping) TornDown(now);
}

// The node counts as drained once it has a port to offer for the next attempt.
void AgentCore::Drained() {
  Do(agent_action::EndRankOutput{.others_follow = true});
  Do(agent_action::ReservePort());
}

AgentActions AgentCore::OnPortReserved(const Result<uint32_t>& port, Clock::time_point now) {
  if (phase_ != Phase::kDraining) return {};
  phase_ = Phase::kIdle;
  if (!port.ok()) {
    StopJob(OwnCause(pb::Cause::START_FAILED, port.error().code,
                     node_name() + ": " + port.error().message));
    return Take();
  }
  if ((failover_by_ || join_when_empty_ || is_electing_) && done_.left_size() > 0) {
    completed_ = true;
    BeginStop(OwnCause(pb::Cause::INTERNAL, ExitCode::kTimedOut,
                       node_name() + ": processes are left that could not be ended"));
    return Take();
  }
  if (given_up_) {
    EmitLost(*std::exchange(given_up_, std::nullopt));
    return Take();
  }
  if (std::exchange(join_when_empty_, false)) {
    GoToRendezvous(now);
    return Take();
  }
  if (is_electing_) {
    election_->OnRanksEnded();
    return Take();
  }
  pb::AgentMessage message;
  pb::Drained& drained = *message.mutable_drained();
  *drained.mutable_left() = done_.left();
  drained.set_master_port(*port);
  SendToRendezvous(std::move(message));
  return Take();
}

void AgentCore::TornDown(Clock::time_point now) {
  phase_ = Phase::kTornDown;
  Do(agent_action::EndRankOutput{.others_follow = false});
  // Without a front end this node keeps the final status of the job, so it waits for the others as
  // long as they may take.
  const pb::Timeouts& timeouts = prepare_.job().timeouts();
  // An empty node that is cut off from the others too has nothing to report, and does not wait for
  // as long.
  const bool is_cut_off = completed_ && !done_.completed();
  if (!detached() && is_cut_off)
    SetLease(milliseconds(std::min(timeouts.lease_ms(), timeouts.dead_ms())));
  quit_at_ =
      now + (detached()
                 ? milliseconds(timeouts.grace_ms() + timeouts.teardown_ms() + timeouts.dead_ms())
                 : kQuitWait);
  pb::AgentMessage message;
  *message.mutable_torn_down()->mutable_left() = done_.left();
  message.mutable_torn_down()->set_saved(workers_.AllSaved());
  SendToRendezvous(std::move(message));
  // A node that leaves does not wait for the end of the job, which goes on.
  if (outcome_.kind() == pb::Cause::NODE_LEFT) completed_ = true;
  EndIfAllIsReported();
  QuitIfIdle(now);
}

// One node cannot tell a connection that broke from a front end that was killed. The rendezvous,
// which hears of all nodes, can. A node without one does not wait for its front end.
void AgentCore::OnFrontEndConnection(bool is_broken) {
  front_end_link_is_broken_ = is_broken;
  Log(is_broken ? "the connection to the front end broke; it may come back"
                : "the front end is connected again");
  if (is_broken && (!joined_ || completed_)) return SendNoFrontEnd();
  pb::AgentMessage message;
  message.mutable_front_end_connection()->set_is_broken(is_broken);
  SendToRendezvous(std::move(message));
}

// Every node of the job gets it, and so does the front end, mostly: the first report counts.
void AgentCore::OnStepSignal(int signal_number) {
  if (!prepared_ || stopping()) return;
  pb::Cause cause = OwnCause(pb::Cause::INTERRUPTED, ExitCode::kInterrupted,
                             "Slurm sent " + SignalName(signal_number) + " to the job's step on " +
                                 node_name() + "; scontrol show job says why");
  cause.set_exit_code(ExitCodeForSignal(signal_number));
  cause.set_signal(signal_number);
  StopJob(cause);
}

void AgentCore::SendNoFrontEnd() {
  pb::SupervisorRequest request;
  request.mutable_no_front_end();
  SendToSupervisor(std::move(request));
}

void AgentCore::OnFrontEndGone(Clock::time_point now) {
  if (std::exchange(front_end_gone_, true)) return;
  Log("the front end is gone");
  Do(agent_action::DetachFrontEnd());
  if (!readers_.front_end_has_all && prepared_) {
    LeaveRendezvousToOthers();
    // What this node was reached through is gone; the others may have their front end still.
    NotifyStop(OwnCause(pb::Cause::NODE_LOST, ExitCode::kUnavailable,
                        node_name() + " was lost: " +
                            (own_ ? "its command has ended"
                                  : "its front end vanished, or the "
                                    "connection to it broke")));
    BeginStop(
        OwnCause(pb::Cause::FRONT_END_LOST, ExitCode::kUnavailable, "the front end vanished"));
  }
  QuitIfIdle(now);
}

AgentActions AgentCore::OnSupervisorGone(Clock::time_point now) {
  if (std::exchange(supervisor_gone_, true)) return {};
  // The supervisor was our way to the front end; the workers died with it, what they started did
  // not.
  front_end_gone_ = true;
  Do(agent_action::DetachFrontEnd());
  if (!prepared_) {
    QuitIfIdle(now);
    return Take();
  }
  LeaveRendezvousToOthers();
  StopJob(OwnCause(pb::Cause::NODE_LOST, ExitCode::kUnavailable,
                   node_name() + " was lost: its supervisor process was killed"));
  Do(agent_action::SweepOrphans{.groups = workers_.RunningPids(), .cgroup = workers_cgroup_});
  return Take();
}

AgentActions AgentCore::OnOrphansSwept(const LeftProcesses& left, Clock::time_point now) {
  OnAllReaped(left, now);
  return Take();
}

// This node cannot go on hosting the rendezvous: the other nodes need a failover, if policy allows
// one.
void AgentCore::LeaveRendezvousToOthers() {
  if (hosts_rendezvous_ && !stopping() && prepare_.job().policy().max_restarts() > 0 &&
      nodes_.size() > 1)
    LeaveRendezvous();
}

// The agent exits once no front end or viewer is left, the node is torn down and the rendezvous has
// been notified of it.
void AgentCore::QuitIfIdle(Clock::time_point now) {
  if (!front_end_gone_ || quits_) return;
  if (prepared_) {
    const bool told = completed_ || (quit_at_ && now >= *quit_at_);
    if (phase_ != Phase::kTornDown || !told) return;
    // A front end that detaches does not listen, even when the end was on its way to it.
    if (detached() || !readers_.front_end_has_all) WriteResult();
    if (!MayQuit(now)) return;
  }
  quits_ = true;
  Do(agent_action::Quit());
}

bool AgentCore::MayQuit(Clock::time_point now) const {
  // The answer to Detach is on its way.
  if (detached() && now - *detached_at_ < kCompletedTravels) return false;
  if (!completed_at_ || !detached()) return true;
  const Clock::duration passed = now - *completed_at_;
  if (hosts_rendezvous_ && passed < kCompletedTravels) return false;
  return !readers_.has_viewers || passed >= kViewersWait;
}

void AgentCore::WriteResult() {
  if (std::exchange(result_written_, true)) return;
  Do(agent_action::EndEvents{done_});
  Do(agent_action::WriteResult{MakeJobResult(prepare_.job().job_id(), outcome_, done_)});
}

void AgentCore::EndIfAllIsReported() {
  if (phase_ == Phase::kTornDown && completed_) Do(agent_action::EndEvents{done_});
}

}  // namespace dslaunch
