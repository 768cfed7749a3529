#include "agent/supervisor/supervisor_core.h"

#include <algorithm>
#include <csignal>
#include <iterator>
#include <utility>

#include "base/exit_code.h"
#include "base/text/signal_name.h"
#include "proto/wire/lease.h"

namespace dslaunch {
namespace {

namespace action = supervisor_action;

pb::SupervisorEvent FrontEndGone() {
  pb::SupervisorEvent event;
  event.mutable_front_end_gone();
  return event;
}

pb::SupervisorEvent ConnectionChange(bool is_broken) {
  pb::SupervisorEvent event;
  event.mutable_front_end_connection()->set_is_broken(is_broken);
  return event;
}

}  // namespace

// --- Requests of the agent ---

SupervisorActions SupervisorCore::OnRequest(pb::SupervisorRequest request, Clock::time_point now) {
  switch (request.request_case()) {
    case pb::SupervisorRequest::kSpawn:
      Append(workers_.OnSpawn(std::move(*request.mutable_spawn()),
                              /*is_refused=*/ending_ || lease_is_over_));
      break;
    case pb::SupervisorRequest::kSignal:
      Act(action::SignalWorkers{request.signal().signal(),
                                request.signal().has_local_rank()
                                    ? std::optional(request.signal().local_rank())
                                    : std::nullopt},
          "the agent asks for it");
      break;
    case pb::SupervisorRequest::kStop:
      workers_.OnStop(request.stop());
      Advance(now);
      break;
    case pb::SupervisorRequest::kConfigure:
      Configure(request.configure(), now);
      break;
    case pb::SupervisorRequest::kDetach:
      detached_ = true;
      lease_end_.reset();  // the front end's lease no longer counts
      break;
    case pb::SupervisorRequest::kAlive:
      OnAlive(request.alive(), now);
      break;
    case pb::SupervisorRequest::kNoFrontEnd:
      if (resume_by_) DeclareFrontEndLost("the agent reports that the front end is gone", now);
      break;
    case pb::SupervisorRequest::kLook:  // looks need no decision
    case pb::SupervisorRequest::REQUEST_NOT_SET:
      break;
  }
  last_seen_ = now;
  return TakeActions();
}

void SupervisorCore::OnAlive(const pb::AgentAlive& alive, Clock::time_point now) {
  lease_end_.reset();
  std::optional<uint32_t> left_ms;
  if (!detached_ && alive.has_lease_left_ms()) left_ms = alive.lease_left_ms();
  if (detached_ && alive.has_majority_lease_left_ms()) left_ms = alive.majority_lease_left_ms();
  // The agent has a lease again, so ranks of another attempt may start under it.
  if (detached_ && left_ms != 0) lease_is_over_ = false;
  if (!left_ms) return;
  lease_end_ = now + milliseconds(*left_ms);
  if (watch_at_ && *lease_end_ < *watch_at_) WatchAgent();
}

void SupervisorCore::Configure(const pb::Configure& configure, Clock::time_point now) {
  workers_.Configure(configure);
  agent_dead_ = milliseconds(configure.agent_dead_ms());
  last_seen_ = now;
  WatchAgent();
}

SupervisorActions SupervisorCore::OnControlLost(Clock::time_point now) {
  BeginEnding(Why::kAgentEnded, "the agent has left its supervisor", now);
  return TakeActions();
}

// --- Heartbeats of the agent ---

void SupervisorCore::WatchAgent() {
  watch_at_ = last_seen_ + agent_dead_;
  if (lease_end_ && !lease_is_over_) watch_at_ = std::min(*watch_at_, *lease_end_);
}

void SupervisorCore::OnWatch(Clock::time_point now) {
  // If this process could not run in time, the agent could not run either, so the agent gets more
  // time for its heartbeat, and to report the current lease.
  if (now > *watch_at_ + kStall) {
    last_seen_ = now;
    if (lease_end_) lease_end_ = std::max(*lease_end_, now + Lease::kCatchUp);
  }
  if (now >= last_seen_ + agent_dead_)
    return BeginEnding(Why::kAgentSilent, "the agent is silent", now);
  if (lease_end_ && now >= *lease_end_ && !std::exchange(lease_is_over_, true)) {
    // Other nodes may need the agent, so it keeps running.
    Act(action::SendToAgent{FrontEndGone()},
        detached_ ? "the lease of the nodes' majority is over" : "the front end's lease is over");
    workers_.BeginKill();
    Advance(now);
  }
  WatchAgent();
}

// --- Causes of the supervisor's end ---

SupervisorActions SupervisorCore::OnFrontEndGone(Clock::time_point now) {
  static constexpr char kReason[] = "the front end is gone";
  if (detached_)
    Act(action::CloseInbound{}, kReason);  // ends the agent's connection only
  else
    BeginEnding(Why::kFrontEndGone, kReason, now);
  return TakeActions();
}

SupervisorActions SupervisorCore::OnConnectionBroken(Clock::time_point now) {
  static constexpr char kReason[] = "the connection to the front end broke";
  resume_by_ = now + kResumeLimit;
  if (detached_ || ending_)
    DeclareFrontEndLost(kReason, now);
  else
    Act(action::SendToAgent{ConnectionChange(/*is_broken=*/true)}, kReason);
  return TakeActions();
}

SupervisorActions SupervisorCore::OnConnectionResumed() {
  if (std::exchange(resume_by_, std::nullopt))
    Act(action::SendToAgent{ConnectionChange(/*is_broken=*/false)},
        "the front end is connected again");
  return TakeActions();
}

void SupervisorCore::DeclareFrontEndLost(const char* reason, Clock::time_point now) {
  resume_by_.reset();
  Act(action::RefuseFrontEnd{}, reason);
  if (detached_)
    Act(action::CloseInbound{}, reason);
  else
    BeginEnding(Why::kFrontEndGone, reason, now);
}

SupervisorActions SupervisorCore::OnOutboundEnded(Clock::time_point now) {
  outbound_ended_ = true;
  Advance(now);
  return TakeActions();
}

SupervisorActions SupervisorCore::OnSignal(int signal, Clock::time_point now) {
  if (signal == SIGHUP && detached_) return {};  // a logout does not end a detached job
  if (signal == SIGUSR1 || signal == SIGUSR2) {
    Act(action::SignalWorkers{signal}, "a signal for the workers arrived");
    return TakeActions();
  }
  if (options_.in_step) {
    pb::SupervisorEvent event;
    event.mutable_step_signal()->set_signal(signal);
    Act(action::SendToAgent{std::move(event)}, "Slurm signals the step");
    return TakeActions();
  }
  signal_ = signal;
  BeginEnding(Why::kSignal, "a signal arrived", now);
  return TakeActions();
}

SupervisorActions SupervisorCore::OnAgentEnd(AgentEnd end) {
  if (!agent_end_) agent_end_ = end;
  return TakeActions();
}

SupervisorActions SupervisorCore::OnReaped(Clock::time_point now) {
  if (agent_end_ && !std::exchange(agent_end_handled_, true)) {
    if (!ending_) ending_ = Why::kAgentEnded;
    if (!workers_.gave_up()) workers_.BeginKill();  // processes that the agent started must end too
  }
  Advance(now);
  return TakeActions();
}

void SupervisorCore::BeginEnding(Why why, const char* reason, Clock::time_point now) {
  if (!ending_) {
    ending_ = why;
    if (why == Why::kFrontEndGone || why == Why::kSignal) {
      Act(action::CloseInbound{}, reason);
      Act(action::SendToAgent{FrontEndGone()}, reason);
    }
    if (why == Why::kAgentSilent) KillAgent(reason, now);
    workers_.BeginKill();
  }
  Advance(now);
}

SupervisorActions SupervisorCore::OnLeft(LeftCount left, Clock::time_point now) {
  count_wanted_ = count_asked_ = false;
  Append(workers_.OnLeft(left, now));
  if (!workers_.stopping()) Advance(now);
  return TakeActions();
}

SupervisorActions SupervisorCore::OnLeftListed(const LeftProcesses& left, Clock::time_point now) {
  Append(workers_.OnLeftListed(left));
  Advance(now);
  return TakeActions();
}

void SupervisorCore::Advance(Clock::time_point now) {
  if (workers_.stopping()) {
    count_wanted_ = true;
    return;
  }
  if (!ending_) return;
  if (!agent_end_ && !agent_unkillable_) return agent_limit_.BeginUntil(now + kAgentEndLimit);
  if (!outbound_ended_) return drain_limit_.BeginUntil(now + kDrainLimit);
  Finish();
}

void SupervisorCore::KillAgent(const char* reason, Clock::time_point now) {
  if (agent_end_) return;
  killed_agent_ = true;
  Act(action::KillAgent{}, reason);
  kill_limit_.BeginUntil(now + kAgentEndLimit);
}

// --- Timeouts ---

SupervisorActions SupervisorCore::OnTime(Clock::time_point now) {
  if (watch_at_ && !ending_ && now >= *watch_at_) OnWatch(now);
  if (resume_by_ && now >= *resume_by_) DeclareFrontEndLost("the front end did not reconnect", now);
  if (workers_.Expires(now)) Advance(now);
  if (agent_limit_.Expires(now)) KillAgent("the agent does not end by itself", now);
  if (kill_limit_.Expires(now)) {
    agent_unkillable_ = !agent_end_;
    Advance(now);
  }
  if (drain_limit_.Expires(now)) {
    outbound_ended_ = true;  // the front end does not accept the agent's last bytes
    Advance(now);
  }
  return TakeActions();
}

std::optional<Clock::time_point> SupervisorCore::wake() const {
  if (finished_) return std::nullopt;
  std::optional<Clock::time_point> earliest;
  const auto consider = [&](std::optional<Clock::time_point> when) {
    if (when && (!earliest || *when < *earliest)) earliest = when;
  };
  if (!ending_) consider(watch_at_);
  consider(resume_by_);
  consider(workers_.wake());
  consider(agent_limit_.end());
  consider(kill_limit_.end());
  consider(drain_limit_.end());
  return earliest;
}

void SupervisorCore::Append(SupervisorActions actions) {
  std::ranges::move(actions, std::back_inserter(out_));
}

SupervisorActions SupervisorCore::TakeActions() {
  // The answer to CountLeft may lead to the next step, so this action is the last.
  if (count_wanted_ && !std::exchange(count_asked_, true))
    Act(action::CountLeft{}, "the graceful kill runs");
  return std::exchange(out_, {});
}

// --- End of the supervisor ---

void SupervisorCore::Finish() {
  if (std::exchange(finished_, true)) return;
  static constexpr char kReason[] = "nothing is left to do";
  const std::string how = AgentFailure();
  if (how.empty()) {
    const int code = ending_ == Why::kSignal ? ExitCodeForSignal(signal_) : ToInt(ExitCode::kOk);
    return Act(action::Finish{code, ""}, kReason);
  }
  Act(action::Finish{ToInt(ExitCode::kInternal), "agent (pid " +
                                                     std::to_string(options_.agent_pid) + ") " +
                                                     how + "; its workers were stopped"},
      kReason);
}

std::string SupervisorCore::AgentFailure() const {
  if (!agent_end_) return "could not be ended";
  if (ending_ == Why::kAgentSilent)
    return "was silent for " + std::to_string(agent_dead_.count()) + " ms and was killed";
  if (killed_agent_)
    return ending_ == Why::kAgentEnded ? "left its supervisor, did not end and was killed" : "";
  if (agent_end_->by_signal) return "was killed by " + SignalName(agent_end_->code);
  if (agent_end_->code != 0) return "ended with exit code " + std::to_string(agent_end_->code);
  return "";
}

}  // namespace dslaunch
