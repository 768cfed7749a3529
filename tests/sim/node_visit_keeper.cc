// A node's ranks, the keeper that starts and ends them, and the ends of keeper and agent.
#include <algorithm>
#include <memory>
#include <utility>

#include "proto/wire/cause.h"
#include "tests/sim/front_end.h"
#include "tests/sim/node_visit.h"
#include "tests/sim/rendezvous.h"

namespace dslaunch::sim {
namespace {

// As in agent/supervisor/keeper.cc.
constexpr milliseconds kStall(500);
constexpr int64_t kAgentEndLimitMs = 2'000;

}  // namespace

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
  world_.timeline.Do(keeper_, [this] { KeeperSpawn(); });
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

void NodeVisit::FailRank() {
  if (!RanksRun(ranks_epoch_) || rank_failed_ || ranks_finished_) return;
  rank_failed_ = true;
  world_.invariants.OnRankFailed(ranks_epoch_, node_);
  Say([&] { return "a rank of epoch " + std::to_string(ranks_epoch_) + " fails"; });
  pb::AgentMessage message;
  pb::WorkerFailed& failed = *message.mutable_worker_failed();
  *failed.mutable_cause() = MakeCause(pb::Cause::WORKER_EXIT, node_, ExitCode::kInternal, "");
  failed.mutable_cause()->set_rank(static_cast<int>(assignment_.first_rank()));
  failed.mutable_cause()->set_victim(world_.random.OneIn(4));
  failed.set_age_us(static_cast<uint64_t>(world_.random.Between(0, 100'000)));
  failed.set_rtt_us(static_cast<uint64_t>(world_.random.Between(0, 100'000)));
  TellAgent([this, message = std::move(message)] { SendToRendezvous(message); });
}

bool NodeVisit::RanksRun(uint64_t epoch) const {
  return ranks_exist_ && ranks_epoch_ == epoch && !ladder_ && !keeper_.gone;
}

void NodeVisit::PlanRanks() {
  Random& random = world_.random;
  const uint64_t epoch = ranks_epoch_;
  const Job& job = world_.job;
  // Some never become ready: the barrier's deadline.
  if (!random.OneIn(60)) {
    world_.timeline.After(random.Between(1, 2'000), &keeper_, [this, epoch] {
      if (RanksRun(epoch)) TellAgent([this] { OnSpawned(); });
    });
  }
  if (random.OneIn(job.rank_fails_one_in)) {
    world_.timeline.After(random.Between(1, 20'000), &keeper_, [this, epoch] {
      if (RanksRun(epoch)) FailRank();
    });
  }
  ranks_stuck_ = job.reports_steps && job.policy().hang_ms() > 0 && random.OneIn(20);
  if (ranks_stuck_) return;
  world_.timeline.After(random.Between(2'000, job.longest_rank_ms), &keeper_,
                        [this, epoch] { FinishRanks(epoch); });
}

void NodeVisit::FinishRanks(uint64_t epoch) {
  if (!RanksRun(epoch) || rank_failed_) return;
  // Whoever writes to a full disk ends badly.
  if (world_.IsDiskFull(node_)) return FailRank();
  ranks_finished_ = true;
  world_.invariants.OnRanksFinished(epoch, node_);
  world_.invariants.OnEmpty(index_, /*left=*/false);
  TellAgent([this, epoch] {
    if (phase_ != Phase::kWorking || epoch != epoch_) return;
    pb::AgentMessage finished;
    finished.mutable_finished();
    SendToRendezvous(std::move(finished));
  });
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
  world_.timeline.Do(keeper_, [this] { KeeperStop(/*kill_now=*/false); });
}

// --- The keeper ---

void NodeVisit::TellAgent(Task task) { world_.timeline.Do(loop_, std::move(task)); }

void NodeVisit::KeeperSpawn() {
  if (ladder_ || ending_ || lease_is_over_ || world_.IsDiskFull(node_))
    return TellAgent([this] { OnSpawnFailed(); });
  ranks_exist_ = true;
  ranks_epoch_ = epoch_;
  rank_failed_ = ranks_finished_ = false;
  ranks_began_ = world_.timeline.now();
  const uint32_t first = assignment_.first_rank();
  Say([&] {
    return "starts ranks of epoch " + std::to_string(epoch_) + " from rank " +
           std::to_string(first);
  });
  for (uint32_t rank = first; rank < first + world_.job.node(node_).slots(); ++rank)
    world_.invariants.OnStart(epoch_, rank, assignment_.world_size(), node_, index_);
  PlanRanks();
}

void NodeVisit::KeeperStop(bool kill_now) {
  stop_requested_ = true;
  StartLadder(kill_now);
}

void NodeVisit::StartLadder(bool kill_now) {
  if (keeper_.gone || (ladder_ && !kill_now)) return;
  const bool runs = ranks_exist_ && !ranks_finished_;
  if (runs && !ladder_) world_.invariants.OnLadder(node_, LeaseEndsBy());
  ladder_ = true;
  const pb::Timeouts& timeouts = world_.job.timeouts();
  int64_t delay = runs && !kill_now ? world_.random.Between(0, timeouts.grace_ms()) : 0;
  if (runs && world_.random.OneIn(150)) {  // not even SIGKILL ends it
    left_ = true;
    delay = timeouts.grace_ms() + timeouts.teardown_ms();
  }
  world_.timeline.After(delay, &keeper_, [this, number = ++ladder_number_] {
    if (ladder_ && number == ladder_number_) EndLadder();
  });
}

// From when the front end said its last word here, or from when the machine or the agent went on.
int64_t NodeVisit::LeaseEndsBy() const {
  const pb::Timeouts& timeouts = world_.job.timeouts();
  const int64_t end = renewal_sent_ + timeouts.dead_ms() + timeouts.lease_ms();
  return std::max(end, machine().went_on_at + Lease::kCatchUp.count()) + timeouts.heartbeat_ms();
}

void NodeVisit::EndLadder() {
  ladder_ = false;
  ranks_exist_ = false;
  world_.invariants.OnEmpty(index_, left_);
  Say([&] { return left_ ? "is empty but for what cannot be ended" : "is empty"; });
  if (std::exchange(stop_requested_, false)) TellAgent([this, left = left_] { OnAllReaped(left); });
  EndKeeperIfDone();
}

// The front end or the agent is gone.
void NodeVisit::BeginEnding() {
  if (!std::exchange(ending_, true)) StartLadder(/*kill_now=*/false);
}

void NodeVisit::OnFrontEndEof() {
  if (keeper_.gone || ending_) return;
  Say([] { return "end of file from the front end"; });
  TellAgent([this] {
    OnStreamOver();
    OnFrontEndGone();
  });
  BeginEnding();
}

void NodeVisit::WatchAgent() {
  const milliseconds dead(world_.job.timeouts().dead_ms());
  Clock::time_point look_at = agent_heard_ + dead;
  if (lease_end_ && !lease_is_over_) look_at = std::min(look_at, *lease_end_);
  watch_expiry_ = look_at;
  const auto wait = std::chrono::duration_cast<milliseconds>(look_at - Now()).count();
  world_.timeline.After(std::max<int64_t>(wait, 0), &keeper_,
                        [this, dead, number = ++watch_number_] {
                          if (number != watch_number_ || ending_) return;
                          const Clock::time_point now = Now();
                          if (now > watch_expiry_ + kStall) {
                            agent_heard_ = now;
                            if (lease_end_)
                              lease_end_ = std::max(*lease_end_, now + Lease::kCatchUp);
                          }
                          if (now >= agent_heard_ + dead) {
                            Say([] { return "the agent is silent, and is killed"; });
                            return KillAgent();
                          }
                          if (lease_end_ && now >= *lease_end_) OnLeaseOver();
                          WatchAgent();
                        });
}

void NodeVisit::OnLeaseOver() {
  if (std::exchange(lease_is_over_, true)) return;
  Say([] { return "the lease is over"; });
  TellAgent([this] { OnFrontEndGone(); });
  StartLadder(/*kill_now=*/false);
}

void NodeVisit::EndKeeperIfDone() {
  if (!ending_ || ladder_ || keeper_.gone) return;
  if (!loop_.gone) {
    world_.timeline.After(kAgentEndLimitMs, &keeper_, [this] { KillAgent(); });
    return;
  }
  keeper_.gone = true;
  Say([] { return "the keeper ends"; });
  const int64_t arrival = world_.network.Send(up_, node_, world_.network.front_end());
  world_.timeline.At(arrival, &world_.front_end->process(),
                     [this] { world_.front_end->OnLinkClosed(*this, /*keeper_ended=*/true); });
}

// --- Ends of processes ---

// By itself, or killed: its descriptors are closed.
void NodeVisit::EndAgent() {
  if (loop_.gone) return;
  loop_.gone = threads_.gone = true;
  Say([] { return "the agent ends"; });
  if (server_ != nullptr) server_->Close();
  if (attended_ != nullptr) attended_->Leave(session_);
  if (keeper_.gone) return;
  if (!detached_events_ && !ended_events_) {
    const int64_t arrival = world_.network.Send(up_, node_, world_.network.front_end());
    world_.timeline.At(arrival, &world_.front_end->process(),
                       [this] { world_.front_end->OnStreamEnd(*this); });
  }
  world_.timeline.Do(keeper_, [this] {
    BeginEnding();
    EndKeeperIfDone();
  });
}

void NodeVisit::KillAgent() { EndAgent(); }

// Its workers die with it.
void NodeVisit::KillKeeper() {
  if (keeper_.gone) return;
  keeper_.gone = true;
  ranks_exist_ = false;
  world_.invariants.OnEmpty(index_, left_);
  const int64_t arrival = world_.network.Send(up_, node_, world_.network.front_end());
  world_.timeline.At(arrival, &world_.front_end->process(),
                     [this] { world_.front_end->OnLinkClosed(*this, /*keeper_ended=*/true); });
  TellAgent([this] { OnKeeperGone(); });
}

void NodeVisit::KillBoth() {
  KillKeeper();
  EndAgent();
}

void NodeVisit::LosePower() {
  loop_.gone = threads_.gone = keeper_.gone = true;
  ranks_exist_ = false;
  world_.invariants.OnEmpty(index_, /*left=*/false);
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
  world_.timeline.At(world_.network.Send(down_, front_end, node_), &keeper_,
                     [this] { OnFrontEndEof(); });
}

}  // namespace dslaunch::sim
