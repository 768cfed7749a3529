// What an agent does about its ranks, and the ends of supervisor and agent.
#include <algorithm>
#include <memory>
#include <utility>

#include "proto/wire/cause.h"
#include "tests/sim/front_end.h"
#include "tests/sim/node_incarnation.h"
#include "tests/sim/rendezvous.h"

namespace dslaunch::sim {

// --- Ranks ---

void NodeIncarnation::OnAssignment(const pb::RendezvousMessage& message) {
  if (phase_ != Phase::kIdle || message.attempt() <= attempt_)
    return Log([&] { return "refuses ranks of attempt " + std::to_string(message.attempt()); });
  phase_ = Phase::kWorking;
  attempt_ = message.attempt();
  assignment_ = message.assignment();
  // The folder of a rank cannot be made.
  if (world_.IsDiskFull(node_) && world_.random.OneIn(2)) {
    return StopJob(OwnCause(pb::Cause::START_FAILED, ExitCode::kIo,
                            ": cannot make the log folder: No space left on device"));
  }
  spawned_ = ended_well_ = 0;
  supervisor_.Request(
      Supervisor::StartRanks(attempt_, assignment_, world_.job.node(node_).slots()));
}

void NodeIncarnation::OnSupervisorEvent(const pb::SupervisorEvent& event) {
  switch (event.event_case()) {
    case pb::SupervisorEvent::kSpawned:
      if (++spawned_ == world_.job.node(node_).slots()) OnSpawned();
      return;
    case pb::SupervisorEvent::kSpawnFailed:
      return OnSpawnFailed();
    case pb::SupervisorEvent::kExited:
      return OnWorkerExited(event.exited());
    case pb::SupervisorEvent::kAllReaped:
      return OnAllReaped(event.all_reaped().left_size() > 0);
    case pb::SupervisorEvent::kFrontEndGone:
      return OnFrontEndGone();
    default:
      return;
  }
}

void NodeIncarnation::OnSpawned() {
  pb::NodeEvent event;
  pb::Started& started = *event.mutable_started();
  started.set_attempt(attempt_);
  started.set_first_rank(assignment_.first_rank());
  started.set_world_size(assignment_.world_size());
  started.set_restart_count(assignment_.restart_count());
  *started.mutable_members() = assignment_.members();
  Emit(std::move(event));
  pb::AgentMessage ready;
  ready.mutable_ready();
  SendToRendezvous(std::move(ready));
}

void NodeIncarnation::OnSpawnFailed() {
  if (phase_ != Phase::kWorking) return;  // refused, because the node is being emptied
  pb::Cause cause = OwnCause(pb::Cause::START_FAILED, ExitCode::kInternal,
                             ": cannot start python3 (open stdout file): No space left on device");
  cause.set_attempt(attempt_);
  cause.set_rank(static_cast<int>(assignment_.first_rank()));
  StopJob(cause);
}

void NodeIncarnation::OnWorkerExited(const pb::WorkerExited& exited) {
  if (exited.stopping()) return;
  pb::AgentMessage message;
  if (exited.exit_code() != 0 || exited.signal() != 0) {
    pb::WorkerFailed& failed = *message.mutable_worker_failed();
    *failed.mutable_cause() = MakeCause(pb::Cause::WORKER_EXIT, node_, ExitCode::kInternal, "");
    failed.mutable_cause()->set_rank(
        static_cast<int>(assignment_.first_rank() + exited.local_rank()));
    failed.mutable_cause()->set_victim(world_.random.OneIn(4));
    failed.set_age_us(static_cast<uint64_t>(world_.random.Between(0, 100'000)));
    failed.set_rtt_us(static_cast<uint64_t>(world_.random.Between(0, 100'000)));
    return SendToRendezvous(std::move(message));
  }
  if (++ended_well_ != world_.job.node(node_).slots() || phase_ != Phase::kWorking) return;
  message.mutable_finished();
  SendToRendezvous(std::move(message));
}

void NodeIncarnation::OnHalt(uint64_t attempt, const pb::Halt& halt) {
  if (phase_ > Phase::kWorking || attempt < attempt_) return;
  phase_ = Phase::kHalting;
  attempt_ = attempt;
  pb::NodeEvent event;
  pb::Restarting& restarting = *event.mutable_restarting();
  restarting.set_attempt(attempt);
  *restarting.mutable_cause() = halt.cause();
  restarting.set_reason(halt.reason());
  Emit(std::move(event));
  StopWorkers(/*kill_now=*/false);
}

void NodeIncarnation::StopWorkers(bool kill_now) {
  pb::SupervisorRequest stop;
  stop.mutable_stop()->set_kill_now(kill_now);
  supervisor_.Request(std::move(stop));
}

int64_t NodeIncarnation::LeaseEndsBy() const {
  const pb::Timeouts& timeouts = world_.job.timeouts();
  const int64_t end = renewal_sent_ + timeouts.dead_ms() + timeouts.lease_ms();
  return std::max(end, machine().went_on_at + Lease::kCatchUp.count()) + timeouts.heartbeat_ms();
}

// --- Ends of processes ---

// By itself, or killed: its descriptors are closed.
void NodeIncarnation::EndAgent(bool killed) {
  if (loop_.gone) return;
  loop_.gone = threads_.gone = true;
  Log([] { return "the agent ends"; });
  if (server_ != nullptr) server_->Close();
  if (attended_ != nullptr) attended_->Leave(session_);
  if (supervisor_.gone()) return;
  if (!detached_events_ && !ended_events_) {
    const int64_t arrival = world_.network.Send(up_, node_, world_.network.front_end());
    world_.timeline.At(arrival, &world_.front_end->process(),
                       [this] { world_.front_end->OnStreamEnd(*this); });
  }
  supervisor_.OnAgentGone(killed);
}

void NodeIncarnation::KillAgent() { EndAgent(/*killed=*/true); }

void NodeIncarnation::OnSupervisorFinished() {
  Log([] { return "the supervisor ends"; });
  const int64_t arrival = world_.network.Send(up_, node_, world_.network.front_end());
  world_.timeline.At(arrival, &world_.front_end->process(),
                     [this] { world_.front_end->OnLinkClosed(*this, /*supervisor_ended=*/true); });
}

// Its workers died with it.
void NodeIncarnation::OnSupervisorKilled() {
  const int64_t arrival = world_.network.Send(up_, node_, world_.network.front_end());
  world_.timeline.At(arrival, &world_.front_end->process(),
                     [this] { world_.front_end->OnLinkClosed(*this, /*supervisor_ended=*/true); });
  world_.timeline.Do(loop_, [this] { OnSupervisorGone(); });
}

void NodeIncarnation::KillBoth() {
  KillSupervisor();
  KillAgent();
}

void NodeIncarnation::LosePower() {
  loop_.gone = threads_.gone = true;
  supervisor_.LosePower();
}

void NodeIncarnation::GetPowerBack() {
  if (!is_over()) return;
  if (server_ != nullptr) server_->Close();
  if (attended_ != nullptr) attended_->Leave(session_);
  const int64_t arrival = world_.network.Send(up_, node_, world_.network.front_end());
  world_.timeline.At(arrival, &world_.front_end->process(),
                     [this] { world_.front_end->OnLinkClosed(*this, /*supervisor_ended=*/false); });
}

void NodeIncarnation::ResetRendezvous() {
  if (attended_ != nullptr && attended_ != server_) attended_->Reset(session_);
}

void NodeIncarnation::ResetLink() {
  const Place front_end = world_.network.front_end();
  world_.timeline.At(world_.network.Send(up_, node_, front_end), &world_.front_end->process(),
                     [this] { world_.front_end->OnLinkClosed(*this, /*supervisor_ended=*/false); });
  world_.timeline.At(world_.network.Send(down_, front_end, node_), &supervisor(),
                     [this] { OnFrontEndEof(); });
}

}  // namespace dslaunch::sim
