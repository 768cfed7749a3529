#include "tests/sim/node_incarnation.h"

#include <algorithm>
#include <utility>

#include "proto/wire/cause.h"
#include "tests/sim/front_end.h"
#include "tests/sim/rendezvous.h"

namespace dslaunch::sim {
namespace {

// As in agent/node/node_agent*.cc.
constexpr milliseconds kDefaultTick(500);
constexpr milliseconds kSupervisorTellsWithin(1'000);
constexpr milliseconds kGoodbyeWithin(30'000);
constexpr int kLoopPatience = 5;
constexpr milliseconds kUnpreparedLease(10'000);
constexpr milliseconds kStall(500);
constexpr milliseconds kQuitWait(1'000);

}  // namespace

NodeIncarnation::NodeIncarnation(World& world, size_t index, uint32_t node)
    : world_(world),
      index_(index),
      node_(node),
      supervisor_(world, *this),
      renewal_sent_(world.timeline.now()),
      lease_({.length = kUnpreparedLease, .look_every = kDefaultTick, .prompt = kUnpreparedLease},
             BootNow()) {
  tick_expiry_ = turned_at_ = Now();
  Tick();
}

Clock::time_point NodeIncarnation::Now() const { return world_.timeline.NowOn(machine().clock); }
BootClock::time_point NodeIncarnation::BootNow() const {
  return BootClock::time_point(
      std::chrono::duration_cast<BootClock::duration>(Now().time_since_epoch()));
}
Machine& NodeIncarnation::machine() const { return world_.machines[node_]; }
std::string NodeIncarnation::name() const { return world_.NameOf(node_); }

pb::Cause NodeIncarnation::OwnCause(pb::Cause::Kind kind, ExitCode code,
                                    const std::string& what) const {
  return MakeCause(kind, node_, code, name() + what);
}

// --- The front end's calls ---

bool NodeIncarnation::Prepare(const pb::PrepareRequest& request) {
  if (world_.IsDiskFull(node_)) return false;
  prepare_ = request;
  prepare_.set_node_index(node_);
  pb::SupervisorRequest configure;
  configure.mutable_configure()->set_job_id(request.job_id());
  configure.mutable_configure()->set_grace_ms(request.timeouts().grace_ms());
  configure.mutable_configure()->set_teardown_ms(request.timeouts().teardown_ms());
  configure.mutable_configure()->set_agent_dead_ms(request.timeouts().dead_ms());
  supervisor_.Request(std::move(configure));
  if (node_ == request.rendezvous_node()) {
    pb::FailoverRequest nothing_before;
    *nothing_before.mutable_absent_nodes() = request.absent_nodes();
    OpenRendezvous(nothing_before, std::nullopt);
  }
  prepared_ = true;
  SetLease(milliseconds(request.timeouts().lease_ms()));
  Beat();
  return true;
}

void NodeIncarnation::Run(Rendezvous* rendezvous) {
  target_ = rendezvous;
  if (!stopping()) GoToRendezvous();
}

uint64_t NodeIncarnation::Renew(std::optional<uint64_t> last_seen_us, int64_t sent) {
  renewal_sent_ = sent;
  return lease_.Renew(last_seen_us, BootNow());
}

void NodeIncarnation::Stop(const pb::Cause& cause, bool kill_now) { StopJob(cause, kill_now); }

bool NodeIncarnation::Failover(const pb::FailoverRequest& request, Rendezvous* rendezvous) {
  if (!failover_by_ || stopping()) return false;
  if (request.rendezvous_node() == node_) OpenRendezvous(request, prepare_.rendezvous_node());
  failover_by_.reset();
  prepare_.set_rendezvous_node(request.rendezvous_node());
  target_ = rendezvous;
  join_when_empty_ = phase_ == Phase::kHalting;
  if (!join_when_empty_) GoToRendezvous();
  return true;
}

// --- The end ---

void NodeIncarnation::StopJob(const pb::Cause& cause, bool kill_now) {
  NotifyStop(cause);
  BeginStop(cause, kill_now);
}

void NodeIncarnation::NotifyStop(const pb::Cause& cause) {
  pb::AgentMessage message;
  *message.mutable_stop()->mutable_cause() = cause;
  SendToRendezvous(std::move(message));
  if (attended_ == nullptr) closed_ = true;
}

void NodeIncarnation::BeginStop(const pb::Cause& cause, bool kill_now) {
  const bool again = stopping();
  if (again && !kill_now) return;
  if (!again) {
    Log([&] { return "stops: " + CauseText(cause); });
    phase_ = Phase::kStopping;
    pb::NodeEvent event;
    event.mutable_outcome()->set_attempt(attempt_);
    *event.mutable_outcome()->mutable_cause() = cause;
    Emit(std::move(event));
  }
  StopWorkers(kill_now);
}

void NodeIncarnation::OnAllReaped(bool left) {
  done_.clear_left();
  if (left) done_.add_left()->set_pid(1);
  if (phase_ == Phase::kHalting) return Halted();
  if (phase_ == Phase::kStopping) TornDown();
}

void NodeIncarnation::Halted() {
  phase_ = Phase::kIdle;
  if ((failover_by_ || join_when_empty_) && done_.left_size() > 0) {
    closed_ = true;
    return BeginStop(OwnCause(pb::Cause::INTERNAL, ExitCode::kTimedOut,
                              ": processes are left that could not be ended"));
  }
  if (std::exchange(join_when_empty_, false)) return GoToRendezvous();
  pb::AgentMessage message;
  *message.mutable_halted()->mutable_left() = done_.left();
  message.mutable_halted()->set_master_port(30'000);
  SendToRendezvous(std::move(message));
}

void NodeIncarnation::TornDown() {
  phase_ = Phase::kEmpty;
  const pb::Timeouts& timeouts = prepare_.timeouts();
  SetLease(milliseconds(std::min(timeouts.lease_ms(), timeouts.dead_ms())));
  quit_at_ = Now() + kQuitWait;
  pb::AgentMessage message;
  *message.mutable_torn_down()->mutable_left() = done_.left();
  SendToRendezvous(std::move(message));
  EndIfAllIsReported();
  QuitIfIdle();
}

void NodeIncarnation::EndIfAllIsReported() {
  if (phase_ != Phase::kEmpty || !closed_ || ended_events_) return;
  pb::NodeEvent event;
  *event.mutable_done() = done_;
  Emit(std::move(event));
  ended_events_ = true;
  if (detached_events_ || supervisor_gone_) return;
  // The stream ends well.
  stream_over_at_ = Now();
  const int64_t arrival = world_.network.Send(up_, node_, world_.network.front_end());
  world_.timeline.At(arrival, &world_.front_end->process(),
                     [this] { world_.front_end->OnStreamEnd(*this); });
}

void NodeIncarnation::OnStreamOver() {
  if (!stream_over_at_) stream_over_at_ = Now();
  detached_events_ = true;
}

void NodeIncarnation::OnFrontEndGone() {
  if (std::exchange(front_end_gone_, true)) return;
  Log([] { return "the front end is gone"; });
  detached_events_ = true;
  if (!ended_events_ && prepared_) {
    const pb::Cause cause = MakeCause(pb::Cause::FRONT_END_LOST, node_, ExitCode::kUnavailable,
                                      "the front end vanished");
    NotifyStop(cause);
    BeginStop(cause);
  }
  QuitIfIdle();
}

void NodeIncarnation::OnSupervisorGone() {
  if (std::exchange(supervisor_gone_, true)) return;
  front_end_gone_ = detached_events_ = true;
  if (!prepared_) return EndAgent();
  if (server_ != nullptr && prepare_.policy().max_restarts() > 0 && world_.job.size() > 1)
    LeaveRendezvous();
  StopJob(OwnCause(pb::Cause::NODE_LOST, ExitCode::kUnavailable,
                   " was lost: its supervisor process was killed"));
  OnAllReaped(/*left=*/false);
}

void NodeIncarnation::QuitIfIdle() {
  if (!front_end_gone_ || loop_.gone) return;
  if (prepared_) {
    const bool told = closed_ || (quit_at_ && Now() >= *quit_at_);
    if (phase_ != Phase::kEmpty || !told) return;
  }
  EndAgent();
}

// --- Time ---

void NodeIncarnation::Beat() {
  if (server_ != nullptr) server_->Tick();
  const milliseconds patience = kLoopPatience * milliseconds(prepare_.timeouts().dead_ms());
  if (Now() - turned_at_ < patience) {
    pb::SupervisorRequest alive;
    alive.mutable_alive();
    if (const auto left = lease_.Left(BootNow()))
      alive.mutable_alive()->set_lease_left_ms(static_cast<uint32_t>(left->count()));
    supervisor_.Request(std::move(alive));
    if (attended_ != nullptr && !closed_) attended_->Handle(session_, MakeBeat());
  }
  world_.timeline.After(prepare_.timeouts().heartbeat_ms() / 2, &threads_, [this] { Beat(); });
}

pb::AgentMessage NodeIncarnation::MakeBeat() const {
  pb::AgentMessage message;
  message.set_job_id("job");
  message.set_node_index(node_);
  message.set_attempt(attempt_);
  pb::Heartbeat& heartbeat = *message.mutable_heartbeat();
  const int64_t now = world_.timeline.now();
  heartbeat.set_sent_us(static_cast<uint64_t>(now) * 1'000);
  const Ranks& ranks = supervisor_.ranks();
  const bool known = ranks.attempt == attempt_ && (ranks.exist || ranks.finished);
  if (!world_.job.reports_steps || phase_ != Phase::kWorking || !known) return message;
  pb::RankProgress& rank = *heartbeat.add_ranks();
  rank.set_rank(assignment_.first_rank());
  const auto age = static_cast<uint64_t>(now - ranks.began);
  rank.set_step(ranks.stuck ? 1 : age / 1'000 + 1);
  rank.set_since_us(ranks.stuck ? age * 1'000 : 0);
  rank.set_median_step_us(1'000'000 + 200'000 * node_);
  rank.set_ended(ranks.finished);
  return message;
}

void NodeIncarnation::Tick() {
  milliseconds interval = kDefaultTick;
  if (prepared_) {
    interval = milliseconds(prepare_.timeouts().heartbeat_ms()) / 2;
    turned_at_ = Now();
    EmitAlive();
    CheckSilence(Now() > tick_expiry_ + kStall);
  } else {
    CheckLease();
  }
  QuitIfIdle();
  tick_expiry_ = Now() + interval;
  world_.timeline.After(interval.count(), &loop_, [this] { Tick(); });
}

void NodeIncarnation::CheckSilence(bool tick_was_late) {
  const Clock::time_point now = Now();
  if (tick_was_late) last_seen_ = now;
  const pb::Timeouts& timeouts = prepare_.timeouts();
  if (attended_ != nullptr && !closed_ && now - last_seen_ >= milliseconds(timeouts.dead_ms()))
    LoseRendezvous();
  if (failover_by_ && now >= *failover_by_) {
    failover_by_.reset();
    BeginStop(lost_by_);
    OnClosed({});
  }
  CheckLease();
  const milliseconds patience = ended_events_ ? kGoodbyeWithin : kSupervisorTellsWithin;
  if (stream_over_at_ && now - *stream_over_at_ >= patience) OnFrontEndGone();
}

void NodeIncarnation::CheckLease() {
  if (lease_.Left(BootNow()) == milliseconds(0)) OnFrontEndGone();
}

void NodeIncarnation::SetLease(milliseconds length) {
  const pb::Timeouts& timeouts = prepare_.timeouts();
  lease_.SetTerms({.length = length,
                   .look_every = milliseconds(timeouts.heartbeat_ms()) / 2,
                   .prompt = milliseconds(timeouts.dead_ms())});
}

// --- To the front end ---

void NodeIncarnation::Emit(pb::NodeEvent event) {
  if (detached_events_ || supervisor_gone_ || ended_events_) return;
  const int64_t arrival = world_.network.Send(up_, node_, world_.network.front_end());
  world_.timeline.At(arrival, &world_.front_end->process(),
                     [this, event = std::move(event)] { world_.front_end->OnEvent(*this, event); });
}

void NodeIncarnation::EmitAlive() {
  if (detached_events_ || supervisor_gone_ || ended_events_) return;
  const int64_t arrival = world_.network.Send(up_, node_, world_.network.front_end());
  world_.timeline.At(arrival, &world_.front_end->process(),
                     [this] { world_.front_end->OnAlive(*this); });
}

}  // namespace dslaunch::sim
