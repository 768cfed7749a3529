// How a node's part of the job ends, whoever is lost, and who has to hear of it.
#include <unistd.h>

#include <utility>

#include "agent/node/node_agent.h"
#include "agent/supervisor/orphan_sweep.h"
#include "proto/wire/cause.h"
#include "proto/wire/job_result.h"

namespace dslaunch {
namespace {

constexpr milliseconds kQuitWait(1000);      // for the other nodes to hear of our end
constexpr milliseconds kClosedTravels(500);  // what the rendezvous said last, to the others
constexpr milliseconds kViewersWait(2000);   // for viewers to take their last events

}  // namespace

void NodeAgent::StopJob(const pb::Cause& cause, bool kill_now) {
  TellOfStop(cause);
  BeginStop(cause, kill_now);
}

void NodeAgent::TellOfStop(const pb::Cause& cause) {
  pb::AgentMessage message;
  *message.mutable_stop()->mutable_cause() = cause;
  SendToRendezvous(std::move(message));
  if (!link_ || !link_->joined()) closed_ = true;
}

void NodeAgent::BeginStop(const pb::Cause& cause, bool kill_now) {
  const bool again = stopping();
  if (again && !kill_now) return;
  if (!again) phase_ = Phase::kStopping;
  log_.Write(std::string(kill_now ? "killing" : "stopping") + ": " + CauseText(cause));
  if (!again) {
    pb::NodeEvent event;
    event.mutable_outcome()->set_epoch(epoch_);
    *event.mutable_outcome()->mutable_cause() = cause;
    outcome_ = cause;
    events_.Emit(std::move(event));
  }
  pb::KeeperRequest request;
  request.mutable_stop()->set_kill_now(kill_now);
  SendToKeeper(request);
}

void NodeAgent::OnAllReaped(const pb::AllReaped& reaped) {
  log_.Write(reaped.left_size() == 0 ? "every process is reaped"
                                     : "processes are left that could not be ended");
  *done_.mutable_left() = reaped.left();
  if (phase_ == Phase::kHalting) return Halted();
  if (phase_ == Phase::kStopping) TornDown();
}

void NodeAgent::Halted() {
  phase_ = Phase::kIdle;
  events_.EndEpoch();
  if (filtered_log_) filtered_log_->EndEpoch();
  if (const Result<void> port = ReserveMasterPort(); !port.ok()) {
    return StopJob(MakeCause(pb::Cause::START_FAILED, prepare_.node_index(), port.error().code,
                             node_name() + ": " + port.error().message));
  }
  if ((move_by_ || join_when_empty_) && done_.left_size() > 0) {
    closed_ = true;
    return BeginStop(MakeCause(pb::Cause::INTERNAL, prepare_.node_index(), ExitCode::kTimedOut,
                               node_name() + ": processes are left that could not be ended"));
  }
  if (std::exchange(join_when_empty_, false)) return GoToRendezvous();
  pb::AgentMessage message;
  pb::Halted& halted = *message.mutable_halted();
  *halted.mutable_left() = done_.left();
  halted.set_master_port(static_cast<uint32_t>(master_port_.port));
  SendToRendezvous(std::move(message));
}

void NodeAgent::TornDown() {
  phase_ = Phase::kEmpty;
  if (filtered_log_) filtered_log_->EndEpoch();
  ended_at_ = std::chrono::system_clock::now();
  // Without a front end the job's last word is this node's to keep, so it waits for the others as
  // long as they may take.
  const pb::Timeouts& timeouts = prepare_.timeouts();
  // An empty node has nothing to lose, and does not wait for as long.
  if (!detached_) SetLease(milliseconds(std::min(timeouts.lease_ms(), timeouts.dead_ms())));
  quit_at_ =
      Clock::now() +
      (detached_ ? milliseconds(timeouts.grace_ms() + timeouts.teardown_ms() + timeouts.dead_ms())
                 : kQuitWait);
  pb::AgentMessage message;
  *message.mutable_torn_down()->mutable_left() = done_.left();
  SendToRendezvous(std::move(message));
  EndIfAllIsSaid();
  QuitIfIdle();
}

void NodeAgent::OnFrontEndGone() {
  if (std::exchange(front_end_gone_, true)) return;
  log_.Write("the front end is gone");
  events_.Detach();
  if (!events_.ended() && prepared_) {
    const pb::Cause cause = MakeCause(pb::Cause::FRONT_END_LOST, prepare_.node_index(),
                                      ExitCode::kUnavailable, "the front end vanished");
    // What this node was reached through is gone, its own command; the job has its front end still.
    TellOfStop(own_ ? MakeCause(pb::Cause::NODE_LOST, prepare_.node_index(), ExitCode::kUnavailable,
                                node_name() + " was lost: its command is gone")
                    : cause);
    BeginStop(cause);
  }
  QuitIfIdle();
}

void NodeAgent::OnKeeperGone() {
  if (std::exchange(keeper_gone_, true)) return;
  // The keeper was our way to the front end; the workers died with it, what they started did not.
  front_end_gone_ = true;
  events_.Detach();
  if (!prepared_) return loop_.stop();
  // Whoever decides is no longer here: the other nodes need another, if they may have one.
  if (server_ && prepare_.policy().max_restarts() > 0 && prepare_.nodes_size() > 1)
    LeaveRendezvous();
  StopJob(MakeCause(pb::Cause::NODE_LOST, prepare_.node_index(), ExitCode::kUnavailable,
                    node_name() + " was lost: its keeper process was killed"));
  const Orphans orphans = {.job_id = prepare_.job_id(),
                           .groups = workers_.RunningPids(),
                           .session = getsid(0),
                           .cgroup = workers_cgroup_};
  pb::AllReaped reaped;
  LadderOptions ladder;
  ladder.grace = milliseconds(prepare_.timeouts().grace_ms());
  ladder.teardown = milliseconds(prepare_.timeouts().teardown_ms());
  *reaped.mutable_left() = SweepOrphans(orphans, ladder);
  OnAllReaped(reaped);
}

// With nobody left to serve the agent goes: once this node is empty and the rendezvous knows it.
void NodeAgent::QuitIfIdle() {
  if (!front_end_gone_) return;
  if (prepared_) {
    const bool told = closed_ || (quit_at_ && Clock::now() >= *quit_at_);
    if (phase_ != Phase::kEmpty || !told) return;
    // A front end that detaches does not listen, even when the end was on its way to it.
    if (detached_ || !events_.ended()) WriteResult();
    if (!MayQuit()) return;
    attach_socket_.reset();
    pid_file_.reset();
  }
  loop_.stop();
}

bool NodeAgent::MayQuit() const {
  // The answer to Detach is on its way.
  if (detached_ && Clock::now() - detached_at_ < kClosedTravels) return false;
  if (!closed_at_ || !detached_) return true;
  const Clock::duration passed = Clock::now() - *closed_at_;
  if (server_ && passed < kClosedTravels) return false;
  return !events_.HasViewers() || passed >= kViewersWait;
}

void NodeAgent::WriteResult() {
  if (std::exchange(result_written_, true)) return;
  events_.End(done_);
  pb::JobResult result = MakeJobResult(prepare_.job_id(), outcome_, done_);
  result.set_started_unix_ms(UnixMs(started_at_));
  result.set_ended_unix_ms(UnixMs(ended_at_.value_or(std::chrono::system_clock::now())));
  const Result<void> written = WriteJobResult(folder_->path(), result);
  log_.Write(written.ok() ? "the result is exit code " + std::to_string(result.exit_code())
                          : written.error().message);
}

void NodeAgent::EndIfAllIsSaid() {
  if (phase_ == Phase::kEmpty && closed_) events_.End(done_);
}

void NodeAgent::OnStreamOver() {
  if (detached_) return;
  if (!stream_over_at_) stream_over_at_ = Clock::now();
  events_.Detach();
}

}  // namespace dslaunch
