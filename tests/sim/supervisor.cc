#include "tests/sim/supervisor.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <string>
#include <string_view>
#include <utility>

#include "proto/contract/worker_env.h"
#include "tests/sim/node_incarnation.h"

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

Supervisor::Supervisor(World& world, NodeIncarnation& incarnation)
    : world_(world),
      incarnation_(incarnation),
      core_({.plant_early_reaped = world.bug == PlantedBug::kEarlyReaped}) {}

pb::SupervisorRequest Supervisor::StartRanks(uint64_t attempt, const pb::Assignment& assignment,
                                             uint32_t slots) {
  pb::SupervisorRequest request;
  for (uint32_t local_rank = 0; local_rank < slots; ++local_rank) {
    pb::WorkerSpec& spec = *request.mutable_spawn()->add_workers();
    spec.set_local_rank(local_rank);
    spec.set_rank(assignment.first_rank() + local_rank);
    spec.add_env(std::string(kAttemptVariable) + "=" + std::to_string(attempt));
    spec.add_env(std::string(kWorldSizeVariable) + "=" + std::to_string(assignment.world_size()));
  }
  return request;
}

// --- Events of the core ---

void Supervisor::Request(pb::SupervisorRequest request) {
  world_.timeline.Do(process_, [this, request = std::move(request)]() mutable {
    CarryOut(core_.OnRequest(std::move(request), incarnation_.Now()));
  });
}

// Reports the agent's end. The end of its socket and the end of its process are noticed in random
// order.
void Supervisor::OnAgentGone(bool killed) {
  agent_exit_ = AgentEnd{killed ? SIGKILL : 0, killed};
  Random& random = world_.random;
  const bool socket_first = random.OneIn(2);
  const int64_t later = random.Between(0, 50);
  world_.timeline.After(socket_first ? 0 : later, &process_,
                        [this] { CarryOut(core_.OnControlLost(incarnation_.Now())); });
  world_.timeline.After(socket_first ? later : 0, &process_, [this] { Reap(); });
  // The front end sometimes reads slowly, so the output ends later.
  world_.timeline.After(random.OneIn(20) ? random.Between(0, 4'000) : 0, &process_,
                        [this] { CarryOut(core_.OnOutboundEnded(incarnation_.Now())); });
}

void Supervisor::OnFrontEndEof() {
  world_.timeline.Do(incarnation_.loop(), [this] { incarnation_.OnStreamOver(); });
  CarryOut(core_.OnFrontEndGone(incarnation_.Now()));
}

void Supervisor::Reap() {
  while (!exits_.empty()) {
    const Exit exit = exits_.front();
    exits_.pop_front();
    OnStarted(exit.pid);  // a child that dies before its program starts counts as started
    if (exit.local_rank) CarryOut(core_.workers().OnChange(*exit.local_rank, exit.change));
  }
  if (const auto end = std::exchange(agent_exit_, {})) CarryOut(core_.OnAgentEnd(*end));
  CarryOut(core_.OnReaped(incarnation_.Now()));
}

void Supervisor::ArmTimer() {
  const std::optional<Clock::time_point> wake = core_.wake();
  if (wake == armed_for_) return;
  armed_for_ = wake;
  ++timer_number_;
  if (!wake) return;
  const auto wait = std::chrono::ceil<milliseconds>(*wake - incarnation_.Now()).count();
  world_.timeline.After(std::max<int64_t>(wait, 0), &process_, [this, number = timer_number_] {
    if (number != timer_number_) return;
    armed_for_.reset();
    CarryOut(core_.OnTime(incarnation_.Now()));
  });
}

// --- What it wants done ---

void Supervisor::CarryOut(const SupervisorActions& actions) {
  for (const SupervisorAction& action : actions) {
    if (process_.gone) return;
    if (!std::holds_alternative<supervisor_action::CountLeft>(action.what)) {
      world_.Log(world_.NameOf(incarnation_.node()) + " (supervisor of incarnation " +
                     std::to_string(incarnation_.index()) + ")",
                 [&] { return std::string(action.reason); });
    }
    std::visit([this](const auto& what) { Do(what); }, action.what);
  }
  if (!process_.gone) ArmTimer();
}

void Supervisor::Do(const supervisor_action::SendToAgent& send) {
  if (send.event.has_all_reaped() && send.event.all_reaped().left_size() == 0 && CountAlive() > 0)
    world_.invariants.Fail(world_.NameOf(incarnation_.node()) +
                           " says that nothing is left, but something runs");
  world_.timeline.After(0, &incarnation_.loop(),
                        [this, event = send.event] { incarnation_.OnSupervisorEvent(event); });
}

void Supervisor::Do(const supervisor_action::MakeCgroup&) {
  CarryOut(core_.workers().OnCgroup(Error{ExitCode::kUnavailable, "the simulation has none"}));
}

void Supervisor::Do(const supervisor_action::StartWorker& start) {
  const uint32_t local_rank = start.spec.local_rank();
  if (world_.IsDiskFull(incarnation_.node()))
    return CarryOut(core_.workers().OnStartFailed(local_rank, {ENOSPC, "open stdout file"}));
  const uint64_t attempt = NumberOf(start.spec, kAttemptVariable);
  if (!ranks_.exist || ranks_.attempt != attempt) BeginRanks(attempt);
  ranks_.exist = true;
  const pid_t pid = ++last_pid_;
  children_.push_back({.pid = pid, .local_rank = local_rank, .starts = true});
  world_.invariants.OnStart(attempt, start.spec.rank(),
                            static_cast<uint32_t>(NumberOf(start.spec, kWorldSizeVariable)),
                            incarnation_.node(), incarnation_.index());
  world_.timeline.After(world_.random.Between(0, ranks_.start_ms), &process_,
                        [this, pid] { OnStarted(pid); });
}

void Supervisor::OnStarted(pid_t pid) {
  const auto child = std::ranges::find(children_, pid, &Child::pid);
  if (child == children_.end() || !std::exchange(child->starts, false)) return;
  CarryOut(core_.workers().OnStarted(*child->local_rank, pid));
}

void Supervisor::Do(const supervisor_action::CountLeft&) {
  Reap();
  CarryOut(core_.OnLeft(CountLeft(), incarnation_.Now()));
}

void Supervisor::Do(const supervisor_action::SignalLeft& send) {
  BeginSignals();
  for (const Child& child : children_) {
    if (!IsMeant(child, send.targets) || child.deaf || child.unkillable) continue;
    ExitAfter(world_.random.Between(0, world_.job.timeouts().grace_ms()), child.pid,
              {.event = WorkerEvent::kExited, .signal = send.signal});
  }
}

void Supervisor::Do(const supervisor_action::KillLeft& kill) {
  BeginSignals();
  for (Child& child : children_) {
    if (!IsMeant(child, kill.targets) || child.unkillable || std::exchange(child.killed, true))
      continue;
    ExitAfter(world_.random.Between(0, kDieOfKillMs), child.pid,
              {.event = WorkerEvent::kKilled, .signal = SIGKILL});
  }
}

void Supervisor::Do(const supervisor_action::ListLeft&) {
  if (CountKillable() == 0) world_.invariants.OnEmpty(incarnation_.index(), CountAlive() > 0);
  LeftProcesses left;
  for (const Child& child : children_) {
    if (child.alive) left.Add()->set_pid(child.pid);
  }
  CarryOut(core_.OnLeftListed(left, incarnation_.Now()));
}

void Supervisor::Do(const supervisor_action::CloseInbound&) {
  world_.timeline.Do(incarnation_.loop(), [this] { incarnation_.OnStreamOver(); });
}

void Supervisor::Do(const supervisor_action::KillAgent&) { incarnation_.KillAgent(); }

void Supervisor::Do(const supervisor_action::Finish&) {
  const bool forgot = std::ranges::any_of(children_, [](const Child& child) {
    return child.alive && !child.killed && !child.unkillable;
  });
  if (forgot)
    world_.invariants.Fail("the supervisor of " + world_.NameOf(incarnation_.node()) +
                           " ends, but what it has started runs");
  LoseRanks();
  incarnation_.OnSupervisorFinished();
}

// --- The processes ---

void Supervisor::BeginRanks(uint64_t attempt) {
  Random& random = world_.random;
  const Job& job = world_.job;
  std::erase_if(children_, [](const Child& child) { return !child.alive; });
  signalled_ = false;
  // A start takes time; some starts miss the barrier's deadline.
  const int64_t start_ms = !job.is_calm && random.OneIn(60)
                               ? random.Between(job.timeouts().ready_ms(), kLongestStartMs)
                               : random.Between(1, kUsualStartMs);
  ranks_ = {.attempt = attempt, .began = world_.timeline.now(), .start_ms = start_ms};
  // Sometimes a rank leaves a process behind.
  if (!job.is_calm && random.OneIn(8))
    children_.push_back({.pid = ++last_pid_, .apart = random.OneIn(2), .deaf = random.OneIn(2)});
  if (!job.is_calm && random.OneIn(job.rank_fails_one_in)) {
    world_.timeline.After(start_ms + random.Between(1, 20'000), &process_,
                          [this, attempt] { FailRank(attempt); });
  }
  ranks_.stuck = job.reports_steps && job.policy().hang_ms() > 0 && random.OneIn(20);
  if (ranks_.stuck) return;
  world_.timeline.After(start_ms + random.Between(job.shortest_rank_ms, job.longest_rank_ms),
                        &process_, [this, attempt] { FinishRanks(attempt); });
}

bool Supervisor::RanksRun(uint64_t attempt) const {
  return ranks_.exist && ranks_.attempt == attempt && !signalled_ && !ranks_.failed &&
         !ranks_.finished;
}

void Supervisor::FailRank(uint64_t attempt) {
  if (!RanksRun(attempt)) return;
  ranks_.failed = true;
  world_.invariants.OnRankFailed(attempt, incarnation_.node());
  world_.Log(world_.NameOf(incarnation_.node()),
             [&] { return "a rank of attempt " + std::to_string(attempt) + " fails"; });
  const auto rank = std::ranges::find_if(
      children_, [](const Child& child) { return child.alive && child.local_rank; });
  Exited(rank->pid, {.event = WorkerEvent::kExited, .exit_code = 1});
}

void Supervisor::FinishRanks(uint64_t attempt) {
  if (!RanksRun(attempt)) return;
  // A program that writes to a full disk fails.
  if (world_.IsDiskFull(incarnation_.node())) return FailRank(attempt);
  ranks_.finished = true;
  world_.invariants.OnRanksFinished(attempt, incarnation_.node());
  for (size_t i = 0; i < children_.size(); ++i) {
    if (children_[i].alive && children_[i].local_rank)
      Exited(children_[i].pid, {.event = WorkerEvent::kExited});
  }
}

// Handles the begin of the graceful kill.
void Supervisor::BeginSignals() {
  if (std::exchange(signalled_, true)) return;
  if (!ranks_.exist) return;
  world_.invariants.OnGracefulKill(incarnation_.node(), incarnation_.LeaseEndsBy());
  for (Child& child : children_) {
    if (world_.job.is_calm) continue;
    child.deaf = child.deaf || world_.random.OneIn(8);
    child.unkillable = child.alive && child.local_rank == 0 && world_.random.OneIn(150);
  }
}

void Supervisor::ExitAfter(int64_t delay, pid_t pid, const WorkerChange& change) {
  world_.timeline.After(delay, &process_, [this, pid, change] { Exited(pid, change); });
}

void Supervisor::Exited(pid_t pid, const WorkerChange& change) {
  const auto child = std::ranges::find(children_, pid, &Child::pid);
  if (child == children_.end() || !std::exchange(child->alive, false)) return;
  exits_.push_back({pid, child->local_rank, change});
  ranks_.exist = std::ranges::any_of(
      children_, [](const Child& other) { return other.alive && other.local_rank; });
  if (CountKillable() == 0) world_.invariants.OnEmpty(incarnation_.index(), CountAlive() > 0);
  world_.timeline.Do(process_, [this] { Reap(); });
}

bool Supervisor::IsMeant(const Child& child, KillTargets targets) const {
  if (!child.alive || (child.apart && targets == KillTargets::kRanks)) return false;
  const bool is_served = std::ranges::any_of(children_, [](const Child& other) {
    return other.alive && other.local_rank && !other.killed && !other.unkillable;
  });
  if (child.apart && is_served)
    world_.invariants.Fail("the supervisor of " + world_.NameOf(incarnation_.node()) +
                           " signals what serves its ranks before it has ended them");
  return true;
}

LeftCount Supervisor::CountLeft() const {
  LeftCount left;
  for (const Child& child : children_) {
    if (child.alive) ++(child.apart ? left.apart : left.ranks);
  }
  return left;
}

size_t Supervisor::CountAlive() const {
  return static_cast<size_t>(std::ranges::count_if(children_, &Child::alive));
}

size_t Supervisor::CountKillable() const {
  return static_cast<size_t>(std::ranges::count_if(
      children_, [](const Child& child) { return child.alive && !child.unkillable; }));
}

void Supervisor::Kill() {
  if (gone()) return;
  LoseRanks();
  incarnation_.OnSupervisorKilled();
}

void Supervisor::LosePower() {
  children_.clear();
  LoseRanks();
}

// Ends the supervisor and the workers that it started, except workers that cannot be killed.
void Supervisor::LoseRanks() {
  process_.gone = true;
  std::erase_if(children_, [](const Child& child) { return !child.alive || !child.unkillable; });
  ranks_.exist = false;
  world_.invariants.OnEmpty(incarnation_.index(), !children_.empty());
}

}  // namespace dslaunch::sim
