#include "tests/sim/node_incarnation.h"

#include <memory>
#include <utility>

#include "proto/wire/node_set.h"
#include "tests/sim/front_end.h"
#include "tests/sim/per_node.h"
#include "tests/sim/rendezvous.h"

namespace dslaunch::sim {
namespace {

BootClock::time_point BootTime(Clock::time_point time) {
  return BootClock::time_point(
      std::chrono::duration_cast<BootClock::duration>(time.time_since_epoch()));
}

}  // namespace

NodeIncarnation::NodeIncarnation(World& world, size_t index, uint32_t node,
                                 const std::optional<pb::OwnPart>& own)
    : world_(world),
      index_(index),
      node_(node),
      supervisor_(world, *this),
      renewal_sent_(world.timeline.now()),
      core_({.plant_early_drained = world.bug == PlantedBug::kEarlyDrained,
             .plant_majority = {.minority = world.bug == PlantedBug::kMinority,
                                .no_fence = world.bug == PlantedBug::kNoElectionFence}},
            BootTime(Now())) {
  if (own) core_.job().OnOwn(*own);
  tick_expiry_ = Now();
  Tick();
}

Clock::time_point NodeIncarnation::Now() const { return world_.timeline.NowOn(machine().clock); }
BootClock::time_point NodeIncarnation::BootNow() const { return BootTime(Now()); }
Machine& NodeIncarnation::machine() const { return world_.machines[node_]; }
std::string NodeIncarnation::name() const { return world_.NameOf(node_); }

void NodeIncarnation::CarryOut(AgentActions actions) {
  actions_.CarryOut(std::move(actions), [this](auto& one) { Do(one); });
}

// --- The front end's calls ---

bool NodeIncarnation::Prepare(const pb::PrepareRequest& request) {
  if (world_.IsDiskFull(node_)) return false;
  pb::PrepareRequest own = request;
  own.set_node_index(node_);
  if (!core_.job().OnPrepare(std::move(own)).ok()) return false;
  if (node_ == request.rendezvous_node()) {
    pb::FailoverRequest nothing_before;
    *nothing_before.mutable_absent_nodes() = request.absent_nodes();
    OpenRendezvous(nothing_before, std::nullopt);
  }
  Feed([this](Clock::time_point) { core_.OnPrepared(); });
  return true;
}

void NodeIncarnation::Run(Rendezvous* rendezvous) {
  target_ = rendezvous;
  Feed([this](Clock::time_point now) { core_.membership().OnRun({}, now); });
}

uint64_t NodeIncarnation::Renew(std::optional<uint64_t> last_seen_us, int64_t sent) {
  renewal_sent_ = sent;
  pb::RenewRequest request;
  if (last_seen_us) request.set_last_seen_us(*last_seen_us);
  return core_.front_end().Renew(request, BootNow()).clock_us();
}

void NodeIncarnation::Stop(const pb::Cause& cause, bool kill_now) {
  Feed([&](Clock::time_point) { core_.OnStop(cause, kill_now); });
}

bool NodeIncarnation::Failover(const pb::FailoverRequest& request, Rendezvous* rendezvous) {
  if (!core_.membership().CheckFailover(request).ok()) return false;
  if (request.rendezvous_node() == node_) OpenRendezvous(request, core_.membership().host());
  target_ = rendezvous;
  Feed([&](Clock::time_point now) { core_.membership().OnFailover(request, now); });
  return true;
}

void NodeIncarnation::Detach() {
  Feed([this](Clock::time_point now) { core_.OnDetach("a socket", now, BootNow()); });
}

// --- The supervisor ---

void NodeIncarnation::OnSupervisorEvent(const pb::SupervisorEvent& event) {
  Feed([&](Clock::time_point now) { core_.OnSupervisorEvent(event, now); });
}

void NodeIncarnation::OnSupervisorGone() {
  Feed([this](Clock::time_point now) { core_.OnSupervisorGone(now); });
}

// Processes that the workers had started end at once in the simulation.
void NodeIncarnation::Do(agent_action::SweepOrphans&) {
  Feed([this](Clock::time_point now) { core_.OnAllReaped({}, now); });
}

void NodeIncarnation::Do(agent_action::PlanWorkers& action) {
  // On a full disk, the log folder of a rank sometimes cannot be created.
  if (world_.IsDiskFull(node_) && world_.random.OneIn(2)) {
    return Feed([&](Clock::time_point) {
      core_.workers().OnPlanned(
          action.attempt,
          Error{ExitCode::kIo, name() + ": cannot make the log folder: No space left on device"});
    });
  }
  pb::SpawnWorkers specs =
      Supervisor::StartRanks(action.attempt, action.assignment, core_.job().node().slots()).spawn();
  specs.add_argv(core_.job().spec().ranks().program().argv(0));
  Feed([&](Clock::time_point) { core_.workers().OnPlanned(action.attempt, std::move(specs)); });
}

// Reading the last output of an ended rank takes a while.
void NodeIncarnation::Do(agent_action::DescribeWorker& action) {
  const AttemptWorker* worker = core_.workers().ranks().Find(action.exited.local_rank());
  if (worker == nullptr) return;
  Random& random = world_.random;
  const milliseconds taken(random.Between(0, 100));
  WorkerEnd end;
  end.event.set_attempt(core_.workers().attempt());
  end.event.set_rank(worker->rank);
  end.event.set_local_rank(worker->local_rank);
  end.event.set_exit_code(action.exited.exit_code());
  end.event.set_signal(action.exited.signal());
  end.event.set_stopping(action.exited.stopping());
  end.failed = IsFailure(action.exited);
  if (end.failed) end.event.set_victim(random.OneIn(4));
  const auto round_trip_us = static_cast<uint64_t>(random.Between(0, 100'000));
  Feed([&](Clock::time_point now) {
    core_.OnWorkerDescribed(action, std::move(end), round_trip_us, now + taken);
  });
}

// The node's check takes up to its limit.
void NodeIncarnation::Do(agent_action::ReservePort& action) {
  const auto answer = [this, number = ++reservations_](const std::string& unfit) {
    if (number != reservations_) return;
    Feed([&](Clock::time_point now) { core_.OnPortReserved(uint32_t{30'000}, unfit, now); });
  };
  if (!action.check) return answer("");
  const auto limit = static_cast<int64_t>(core_.job().timeouts().check_ms());
  world_.timeline.After(world_.random.Between(0, limit), &loop_, [this, answer] {
    answer(world_.random.OneIn(4) ? "a fan is broken" : "");
  });
}

// --- Time ---

void NodeIncarnation::Do(agent_action::StartHeart& action) {
  beat_every_ = action.interval;
  loop_watch_ = {.patience = action.patience, .turned_at = Now()};
  ticks_per_beat_ = action.ticks_per_beat;
  Beat();
}

void NodeIncarnation::Beat() {
  if (server_ != nullptr) server_->Tick();
  if (loop_watch_.Lives(Now())) {
    pb::SupervisorRequest request;
    *request.mutable_alive() = core_.Alive(BootNow());
    supervisor_.Request(std::move(request));
    const bool tells_rendezvous = ticks_++ % ticks_per_beat_ == 0;
    if (attended_ != nullptr && tells_rendezvous) attended_->Handle(session_, MakeBeat());
  }
  world_.timeline.After(beat_every_.count(), &threads_, [this] { Beat(); });
}

pb::AgentMessage NodeIncarnation::MakeBeat() const {
  pb::AgentMessage message;
  message.set_job_id(core_.job().spec().job_id());
  message.set_node_index(node_);
  message.set_attempt(core_.workers().attempt());
  pb::Heartbeat& heartbeat = *message.mutable_heartbeat();
  const int64_t now = world_.timeline.now();
  heartbeat.set_sent_us(static_cast<uint64_t>(BootNow().time_since_epoch().count()));
  heartbeat.set_rendezvous_clock_us(rendezvous_clock_us_);
  const Ranks& ranks = supervisor_.ranks();
  const bool known = ranks.attempt == core_.workers().attempt() && (ranks.exist || ranks.finished);
  if (!world_.job.reports_steps || !core_.workers().is_working() || !known) return message;
  pb::RankProgress& rank = *heartbeat.add_ranks();
  rank.set_rank(core_.workers().ranks().assignment().first_rank());
  const auto age = static_cast<uint64_t>(now - ranks.began);
  rank.set_step(ranks.stuck ? 1 : age / 1'000 + 1);
  rank.set_since_us(ranks.stuck ? age * 1'000 : 0);
  rank.set_median_step_us(1'000'000 + 200'000 * node_);
  rank.set_ended(ranks.finished);
  return message;
}

void NodeIncarnation::Tick() {
  if (core_.job().prepared()) {
    loop_watch_.turned_at = Now();
    if (core_.front_end().IsUnasked(BootNow())) EmitAlive();
  }
  const Clock::duration late = Now() - tick_expiry_;
  Feed([&](Clock::time_point now) { core_.OnTick(now, BootNow(), late); });
  const milliseconds interval = core_.tick_interval();
  tick_expiry_ = Now() + interval;
  world_.timeline.After(interval.count(), &loop_, [this] { Tick(); });
}

void NodeIncarnation::Do(agent_action::WriteResult& action) {
  Note([&] { return "keeps the result: " + action.result.ShortDebugString(); });
  world_.invariants.OnCause(action.result.cause());
  if (!core_.front_end().detached()) return;
  JobEnd end;
  end.exit_code = action.result.exit_code();
  end.cause = action.result.cause();
  end.members = IndexesOf(action.result.done().members(), world_.job.size());
  world_.invariants.OnExit(end);
  world_.succeeded = world_.succeeded || end.exit_code == 0;
}

// --- To the front end ---

void NodeIncarnation::Do(agent_action::Log& action) {
  Note([&] { return std::move(action.text); });
}

void NodeIncarnation::Do(agent_action::EndEvents& action) {
  pb::NodeEvent event;
  *event.mutable_done() = std::move(action.done);
  if (world_.per_node && !std::exchange(ended_viewers_, true))
    world_.per_node->OnEvent(*this, event);
  if (detached_events_ || ended_events_) return;
  Emit(std::move(event));
  ended_events_ = true;
  // The stream ends without an error.
  const int64_t arrival = world_.network.Send(up_, node_, world_.network.front_end());
  world_.timeline.At(arrival, &world_.front_end->process(),
                     [this] { world_.front_end->OnStreamEnd(*this); });
  OnStreamOver();
}

void NodeIncarnation::OnStreamOver() {
  Feed([this](Clock::time_point now) { core_.front_end().OnStreamOver(now); });
}

void NodeIncarnation::Emit(pb::NodeEvent event) {
  if (world_.per_node && !event.has_done()) world_.per_node->OnEvent(*this, event);
  if (detached_events_ || ended_events_) return;
  const int64_t arrival = world_.network.Send(up_, node_, world_.network.front_end());
  world_.timeline.At(arrival, &world_.front_end->process(),
                     [this, event = std::move(event)] { world_.front_end->OnEvent(*this, event); });
}

void NodeIncarnation::EmitAlive() {
  if (detached_events_ || ended_events_) return;
  const int64_t arrival = world_.network.Send(up_, node_, world_.network.front_end());
  world_.timeline.At(arrival, &world_.front_end->process(),
                     [this] { world_.front_end->OnAlive(*this); });
}

}  // namespace dslaunch::sim
