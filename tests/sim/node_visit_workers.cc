// What an agent does about its ranks, and the ends of keeper and agent.
#include <algorithm>
#include <memory>
#include <utility>

#include "proto/wire/cause.h"
#include "tests/sim/front_end.h"
#include "tests/sim/node_visit.h"
#include "tests/sim/rendezvous.h"

namespace dslaunch::sim {

// --- Ranks ---

void NodeVisit::OnAssignment(const pb::RendezvousMessage& message) {
  if (phase_ != Phase::kIdle || message.epoch() <= epoch_)
    return Say([&] { return "refuses ranks of epoch " + std::to_string(message.epoch()); });
  phase_ = Phase::kWorking;
  epoch_ = message.epoch();
  assignment_ = message.assignment();
  // The folder of a rank cannot be made.
  if (world_.IsDiskFull(node_) && world_.random.OneIn(2)) {
    return StopJob(OwnCause(pb::Cause::START_FAILED, ExitCode::kIo,
                            ": cannot make the log folder: No space left on device"));
  }
  spawned_ = ended_well_ = 0;
  keeper_.Request(Keeper::StartRanks(epoch_, assignment_, world_.job.node(node_).slots()));
}

void NodeVisit::OnKeeperEvent(const pb::KeeperEvent& event) {
  switch (event.event_case()) {
    case pb::KeeperEvent::kSpawned:
      if (++spawned_ == world_.job.node(node_).slots()) OnSpawned();
      return;
    case pb::KeeperEvent::kSpawnFailed:
      return OnSpawnFailed();
    case pb::KeeperEvent::kExited:
      return OnWorkerExited(event.exited());
    case pb::KeeperEvent::kAllReaped:
      return OnAllReaped(event.all_reaped().left_size() > 0);
    case pb::KeeperEvent::kFrontEndGone:
      return OnFrontEndGone();
    default:
      return;
  }
}

void NodeVisit::OnSpawned() {
  pb::NodeEvent event;
  pb::Started& started = *event.mutable_started();
  started.set_epoch(epoch_);
  started.set_first_rank(assignment_.first_rank());
  started.set_world_size(assignment_.world_size());
  started.set_restart_count(assignment_.restart_count());
  *started.mutable_members() = assignment_.members();
  Emit(std::move(event));
  pb::AgentMessage ready;
  ready.mutable_ready();
  SendToRendezvous(std::move(ready));
}

void NodeVisit::OnSpawnFailed() {
  if (phase_ != Phase::kWorking) return;  // refused, because the node is being emptied
  pb::Cause cause = OwnCause(pb::Cause::START_FAILED, ExitCode::kInternal,
                             ": cannot start python3 (open stdout file): No space left on device");
  cause.set_epoch(epoch_);
  cause.set_rank(static_cast<int>(assignment_.first_rank()));
  StopJob(cause);
}

void NodeVisit::OnWorkerExited(const pb::WorkerExited& exited) {
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

void NodeVisit::OnHalt(uint64_t epoch, const pb::Halt& halt) {
  if (phase_ > Phase::kWorking || epoch < epoch_) return;
  phase_ = Phase::kHalting;
  epoch_ = epoch;
  pb::NodeEvent event;
  pb::Restarting& restarting = *event.mutable_restarting();
  restarting.set_epoch(epoch);
  *restarting.mutable_cause() = halt.cause();
  restarting.set_reason(halt.reason());
  Emit(std::move(event));
  StopWorkers(/*kill_now=*/false);
}

void NodeVisit::StopWorkers(bool kill_now) {
  pb::KeeperRequest stop;
  stop.mutable_stop()->set_kill_now(kill_now);
  keeper_.Request(std::move(stop));
}

int64_t NodeVisit::LeaseEndsBy() const {
  const pb::Timeouts& timeouts = world_.job.timeouts();
  const int64_t end = renewal_sent_ + timeouts.dead_ms() + timeouts.lease_ms();
  return std::max(end, machine().went_on_at + Lease::kCatchUp.count()) + timeouts.heartbeat_ms();
}

// --- Ends of processes ---

// By itself, or killed: its descriptors are closed.
void NodeVisit::EndAgent(bool killed) {
  if (loop_.gone) return;
  loop_.gone = threads_.gone = true;
  Say([] { return "the agent ends"; });
  if (server_ != nullptr) server_->Close();
  if (attended_ != nullptr) attended_->Leave(session_);
  if (keeper_.gone()) return;
  if (!detached_events_ && !ended_events_) {
    const int64_t arrival = world_.network.Send(up_, node_, world_.network.front_end());
    world_.timeline.At(arrival, &world_.front_end->process(),
                       [this] { world_.front_end->OnStreamEnd(*this); });
  }
  keeper_.OnAgentGone(killed);
}

void NodeVisit::KillAgent() { EndAgent(/*killed=*/true); }

void NodeVisit::OnKeeperFinished() {
  Say([] { return "the keeper ends"; });
  const int64_t arrival = world_.network.Send(up_, node_, world_.network.front_end());
  world_.timeline.At(arrival, &world_.front_end->process(),
                     [this] { world_.front_end->OnLinkClosed(*this, /*keeper_ended=*/true); });
}

// Its workers died with it.
void NodeVisit::OnKeeperKilled() {
  const int64_t arrival = world_.network.Send(up_, node_, world_.network.front_end());
  world_.timeline.At(arrival, &world_.front_end->process(),
                     [this] { world_.front_end->OnLinkClosed(*this, /*keeper_ended=*/true); });
  world_.timeline.Do(loop_, [this] { OnKeeperGone(); });
}

void NodeVisit::KillBoth() {
  KillKeeper();
  KillAgent();
}

void NodeVisit::LosePower() {
  loop_.gone = threads_.gone = true;
  keeper_.LosePower();
}

void NodeVisit::GetPowerBack() {
  if (!is_over()) return;
  if (server_ != nullptr) server_->Close();
  if (attended_ != nullptr) attended_->Leave(session_);
  const int64_t arrival = world_.network.Send(up_, node_, world_.network.front_end());
  world_.timeline.At(arrival, &world_.front_end->process(),
                     [this] { world_.front_end->OnLinkClosed(*this, /*keeper_ended=*/false); });
}

void NodeVisit::ResetRendezvous() {
  if (attended_ != nullptr && attended_ != server_) attended_->Reset(session_);
}

void NodeVisit::ResetLink() {
  const Place front_end = world_.network.front_end();
  world_.timeline.At(world_.network.Send(up_, node_, front_end), &world_.front_end->process(),
                     [this] { world_.front_end->OnLinkClosed(*this, /*keeper_ended=*/false); });
  world_.timeline.At(world_.network.Send(down_, front_end, node_), &keeper(),
                     [this] { OnFrontEndEof(); });
}

}  // namespace dslaunch::sim
