#include "tests/sim/keeper.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <string>
#include <string_view>
#include <utility>

#include "proto/contract/worker_env.h"
#include "tests/sim/node_visit.h"

namespace dslaunch::sim {
namespace {

constexpr char kWorldSizeVariable[] = "WORLD_SIZE";
constexpr int64_t kUsualStartMs = 2'000;
constexpr int64_t kLongestStartMs = 14'000;
constexpr int64_t kDieOfKillMs = 20;

uint64_t NumberOf(const pb::WorkerSpec& spec, std::string_view variable) {
  uint64_t number = 0;
  for (const std::string& entry : spec.env()) {
    if (entry.size() <= variable.size() || entry[variable.size()] != '=' ||
        !entry.starts_with(variable))
      continue;
    std::from_chars(entry.data() + variable.size() + 1, entry.data() + entry.size(), number);
  }
  return number;
}

}  // namespace

Keeper::Keeper(World& world, NodeVisit& visit)
    : world_(world),
      visit_(visit),
      core_({.plant_early_reaped = world.bug == PlantedBug::kEarlyReaped}) {}

pb::KeeperRequest Keeper::StartRanks(uint64_t epoch, const pb::Assignment& assignment,
                                     uint32_t slots) {
  pb::KeeperRequest request;
  for (uint32_t local_rank = 0; local_rank < slots; ++local_rank) {
    pb::WorkerSpec& spec = *request.mutable_spawn()->add_workers();
    spec.set_local_rank(local_rank);
    spec.set_rank(assignment.first_rank() + local_rank);
    spec.add_env(std::string(kEpochVariable) + "=" + std::to_string(epoch));
    spec.add_env(std::string(kWorldSizeVariable) + "=" + std::to_string(assignment.world_size()));
  }
  return request;
}

// --- What the core is told ---

void Keeper::Request(pb::KeeperRequest request) {
  world_.timeline.Do(process_, [this, request = std::move(request)]() mutable {
    CarryOut(core_.OnRequest(std::move(request), visit_.Now()));
  });
}

// Either is seen first: its socket's end, or its own.
void Keeper::OnAgentGone(bool killed) {
  agent_exit_ = AgentEnd{killed ? SIGKILL : 0, killed};
  Random& random = world_.random;
  const bool socket_first = random.OneIn(2);
  const int64_t later = random.Between(0, 50);
  world_.timeline.After(socket_first ? 0 : later, &process_,
                        [this] { CarryOut(core_.OnControlLost(visit_.Now())); });
  world_.timeline.After(socket_first ? later : 0, &process_, [this] { Reap(); });
  // A front end that reads slowly.
  world_.timeline.After(random.OneIn(20) ? random.Between(0, 4'000) : 0, &process_,
                        [this] { CarryOut(core_.OnOutboundEnded(visit_.Now())); });
}

void Keeper::OnFrontEndEof() {
  world_.timeline.Do(visit_.loop(), [this] { visit_.OnStreamOver(); });
  CarryOut(core_.OnFrontEndGone(visit_.Now()));
}

void Keeper::Reap() {
  while (!exits_.empty()) {
    const Exit exit = exits_.front();
    exits_.pop_front();
    if (exit.local_rank) CarryOut(core_.OnWorkerChange(*exit.local_rank, exit.change));
  }
  if (const auto end = std::exchange(agent_exit_, {})) CarryOut(core_.OnAgentEnd(*end));
  CarryOut(core_.OnReaped(visit_.Now()));
}

void Keeper::ArmTimer() {
  const std::optional<Clock::time_point> wake = core_.wake();
  if (wake == armed_for_) return;
  armed_for_ = wake;
  ++timer_number_;
  if (!wake) return;
  const auto wait = std::chrono::ceil<milliseconds>(*wake - visit_.Now()).count();
  world_.timeline.After(std::max<int64_t>(wait, 0), &process_, [this, number = timer_number_] {
    if (number != timer_number_) return;
    armed_for_.reset();
    CarryOut(core_.OnTime(visit_.Now()));
  });
}

// --- What it wants done ---

void Keeper::CarryOut(const KeeperActions& actions) {
  for (const KeeperAction& action : actions) {
    if (process_.gone) return;
    if (!std::holds_alternative<keeper_action::CountLeft>(action.what)) {
      world_.Say(world_.NameOf(visit_.node()) + " (keeper of visit " +
                     std::to_string(visit_.index()) + ")",
                 [&] { return std::string(action.reason); });
    }
    std::visit([this](const auto& what) { Do(what); }, action.what);
  }
  if (!process_.gone) ArmTimer();
}

// What a keeper says that is busy with starting comes when that is done.
void Keeper::Do(const keeper_action::SendToAgent& send) {
  if (send.event.has_all_reaped() && send.event.all_reaped().left_size() == 0 && CountAlive() > 0)
    world_.invariants.Fail(world_.NameOf(visit_.node()) +
                           " says that nothing is left, but something runs");
  world_.timeline.At(process_.stopped_until, &visit_.loop(),
                     [this, event = send.event] { visit_.OnKeeperEvent(event); });
}

void Keeper::Do(const keeper_action::MakeCgroup&) {
  CarryOut(core_.OnCgroup(Error{ExitCode::kUnavailable, "the simulation has none"}));
}

void Keeper::Do(const keeper_action::StartWorker& start) {
  const uint32_t local_rank = start.spec.local_rank();
  if (world_.IsDiskFull(visit_.node()))
    return CarryOut(core_.OnStartFailed(local_rank, {ENOSPC, "open stdout file"}));
  const uint64_t epoch = NumberOf(start.spec, kEpochVariable);
  if (!ranks_.exist || ranks_.epoch != epoch) BeginRanks(epoch);
  ranks_.exist = true;
  children_.push_back({.pid = ++last_pid_, .local_rank = local_rank});
  world_.invariants.OnStart(epoch, start.spec.rank(),
                            static_cast<uint32_t>(NumberOf(start.spec, kWorldSizeVariable)),
                            visit_.node(), visit_.index());
  CarryOut(core_.OnStarted(local_rank, last_pid_));
}

void Keeper::Do(const keeper_action::CountLeft&) {
  Reap();
  CarryOut(core_.OnLeft(CountAlive(), visit_.Now()));
}

void Keeper::Do(const keeper_action::TermAll&) {
  BeginSignals();
  for (const Child& child : children_) {
    if (!child.alive || child.deaf || child.unkillable) continue;
    ExitAfter(world_.random.Between(0, world_.job.timeouts().grace_ms()), child.pid,
              {.event = WorkerEvent::kExited, .signal = SIGTERM});
  }
}

void Keeper::Do(const keeper_action::KillAll&) {
  BeginSignals();
  for (Child& child : children_) {
    if (!child.alive || child.unkillable || std::exchange(child.killed, true)) continue;
    ExitAfter(world_.random.Between(0, kDieOfKillMs), child.pid,
              {.event = WorkerEvent::kKilled, .signal = SIGKILL});
  }
}

void Keeper::Do(const keeper_action::ListLeft&) {
  if (CountKillable() == 0) world_.invariants.OnEmpty(visit_.index(), CountAlive() > 0);
  LeftProcesses left;
  for (const Child& child : children_) {
    if (child.alive) left.Add()->set_pid(child.pid);
  }
  CarryOut(core_.OnLeftListed(left, visit_.Now()));
}

void Keeper::Do(const keeper_action::CloseInbound&) {
  world_.timeline.Do(visit_.loop(), [this] { visit_.OnStreamOver(); });
}

void Keeper::Do(const keeper_action::KillAgent&) { visit_.KillAgent(); }

void Keeper::Do(const keeper_action::Finish&) {
  const bool forgot = std::ranges::any_of(children_, [](const Child& child) {
    return child.alive && !child.killed && !child.unkillable;
  });
  if (forgot)
    world_.invariants.Fail("the keeper of " + world_.NameOf(visit_.node()) +
                           " ends, but what it has started runs");
  LoseRanks();
  visit_.OnKeeperFinished();
}

// --- The processes ---

void Keeper::BeginRanks(uint64_t epoch) {
  Random& random = world_.random;
  const Job& job = world_.job;
  std::erase_if(children_, [](const Child& child) { return !child.alive; });
  ranks_ = {.epoch = epoch, .began = world_.timeline.now()};
  signalled_ = false;
  // A start takes time, in which the keeper does nothing else; some miss the barrier's deadline.
  const int64_t busy = random.OneIn(60) ? random.Between(job.timeouts().ready_ms(), kLongestStartMs)
                                        : random.Between(1, kUsualStartMs);
  Machine& machine = visit_.machine();
  machine.went_on_at = std::max(machine.went_on_at, world_.timeline.now() + busy);
  machine.stood_still = machine.stood_still || busy > kUsualStartMs;
  world_.timeline.Stop(process_, world_.timeline.now() + busy);
  // A program of its own that a rank leaves behind.
  if (random.OneIn(8)) children_.push_back({.pid = ++last_pid_, .deaf = random.OneIn(2)});
  if (random.OneIn(job.rank_fails_one_in)) {
    world_.timeline.After(busy + random.Between(1, 20'000), &process_,
                          [this, epoch] { FailRank(epoch); });
  }
  ranks_.stuck = job.reports_steps && job.policy().hang_ms() > 0 && random.OneIn(20);
  if (ranks_.stuck) return;
  world_.timeline.After(busy + random.Between(2'000, job.longest_rank_ms), &process_,
                        [this, epoch] { FinishRanks(epoch); });
}

bool Keeper::RanksRun(uint64_t epoch) const {
  return ranks_.exist && ranks_.epoch == epoch && !signalled_ && !ranks_.failed && !ranks_.finished;
}

void Keeper::FailRank(uint64_t epoch) {
  if (!RanksRun(epoch)) return;
  ranks_.failed = true;
  world_.invariants.OnRankFailed(epoch, visit_.node());
  world_.Say(world_.NameOf(visit_.node()),
             [&] { return "a rank of epoch " + std::to_string(epoch) + " fails"; });
  const auto rank = std::ranges::find_if(
      children_, [](const Child& child) { return child.alive && child.local_rank; });
  Exited(rank->pid, {.event = WorkerEvent::kExited, .exit_code = 1});
}

void Keeper::FinishRanks(uint64_t epoch) {
  if (!RanksRun(epoch)) return;
  // Whoever writes to a full disk ends badly.
  if (world_.IsDiskFull(visit_.node())) return FailRank(epoch);
  ranks_.finished = true;
  world_.invariants.OnRanksFinished(epoch, visit_.node());
  for (size_t i = 0; i < children_.size(); ++i) {
    if (children_[i].alive && children_[i].local_rank)
      Exited(children_[i].pid, {.event = WorkerEvent::kExited});
  }
}

// The kill ladder has begun.
void Keeper::BeginSignals() {
  if (std::exchange(signalled_, true)) return;
  if (!ranks_.exist) return;
  world_.invariants.OnLadder(visit_.node(), visit_.LeaseEndsBy());
  for (Child& child : children_) {
    child.deaf = child.deaf || world_.random.OneIn(8);
    child.unkillable = child.alive && child.local_rank == 0 && world_.random.OneIn(150);
  }
}

void Keeper::ExitAfter(int64_t delay, pid_t pid, const WorkerChange& change) {
  world_.timeline.After(delay, &process_, [this, pid, change] { Exited(pid, change); });
}

void Keeper::Exited(pid_t pid, const WorkerChange& change) {
  const auto child = std::ranges::find(children_, pid, &Child::pid);
  if (child == children_.end() || !std::exchange(child->alive, false)) return;
  exits_.push_back({child->local_rank, change});
  ranks_.exist = std::ranges::any_of(
      children_, [](const Child& other) { return other.alive && other.local_rank; });
  if (CountKillable() == 0) world_.invariants.OnEmpty(visit_.index(), CountAlive() > 0);
  world_.timeline.Do(process_, [this] { Reap(); });
}

size_t Keeper::CountAlive() const {
  return static_cast<size_t>(std::ranges::count_if(children_, &Child::alive));
}

size_t Keeper::CountKillable() const {
  return static_cast<size_t>(std::ranges::count_if(
      children_, [](const Child& child) { return child.alive && !child.unkillable; }));
}

void Keeper::Kill() {
  if (gone()) return;
  LoseRanks();
  visit_.OnKeeperKilled();
}

void Keeper::LosePower() {
  children_.clear();
  LoseRanks();
}

// The keeper is gone, and its workers with it.
void Keeper::LoseRanks() {
  process_.gone = true;
  std::erase_if(children_, [](const Child& child) { return !child.alive || !child.unkillable; });
  ranks_.exist = false;
  world_.invariants.OnEmpty(visit_.index(), !children_.empty());
}

}  // namespace dslaunch::sim
