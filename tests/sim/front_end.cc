#include "tests/sim/front_end.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "proto/wire/cause.h"
#include "tests/sim/node_visit.h"

namespace dslaunch::sim {
namespace {

// As in cli/session/session*.cc and node_client.cc.
constexpr int64_t kTeardownSlackMs = 5'000;
constexpr int64_t kRenewEveryMs = 1'000;
constexpr int64_t kWatchEveryMs = 1'000;
constexpr int64_t kConnectMs = 300;

}  // namespace

FrontEnd::FrontEnd(World& world)
    : world_(world),
      story_(world.job.plan, world.job.policy()),
      nodes_(world.job.size()),
      prepare_(world.job.prepare) {}

Clock::time_point FrontEnd::Now() const {
  return world_.timeline.NowOn(world_.front_end_machine.clock);
}

milliseconds FrontEnd::dead_after() const { return milliseconds(world_.job.timeouts().dead_ms()); }

std::optional<uint32_t> FrontEnd::IndexOf(const NodeVisit& visit) const {
  if (nodes_[visit.node()].client != &visit) return std::nullopt;
  return visit.node();
}

Clock::duration FrontEnd::SilenceOf(const NodeState& node, Clock::time_point now) const {
  return node.listening_since ? now - *node.listening_since : Clock::duration::zero();
}

// --- What the nodes say ---

void FrontEnd::OnAlive(NodeVisit& visit) {
  const std::optional<uint32_t> index = IndexOf(visit);
  if (!index || !nodes_[*index].listening_since) return;
  nodes_[*index].listening_since = nodes_[*index].heard_at = Now();
}

void FrontEnd::OnEvent(NodeVisit& visit, const pb::NodeEvent& event) {
  const std::optional<uint32_t> index = IndexOf(visit);
  if (!index || nodes_[*index].stream_ended) return;
  OnAlive(visit);
  Say([&] { return "hears " + world_.NameOf(*index) + ": " + event.ShortDebugString(); });
  story_.OnEvent(*index, event);
  if (event.has_rendezvous_lost()) OnRendezvousLost(*index, event.rendezvous_lost());
  if (story_.ending()) {
    connector_stopped_ = true;
    ArmTeardownTimer();
  } else if (event.has_restarting() || event.has_started()) {
    for (size_t i = 0; i < nodes_.size(); ++i) {
      if (story_.IsGivenUp(i)) Abandon(i);
    }
  }
}

void FrontEnd::OnStreamEnd(NodeVisit& visit) {
  const std::optional<uint32_t> known = IndexOf(visit);
  if (!known) return;
  const uint32_t index = *known;
  NodeState& node = nodes_[index];
  if (node.preparing) return OnPrepared(index, false, nullptr);
  if (!running_ || node.stream_ended) return;
  node.stream_ended = true;
  node.awaits_move = false;
  node.listening_since.reset();
  Say([&] { return "the stream of " + world_.NameOf(index) + " is over"; });
  if (!story_.IsDone(index)) StopIfLostAtStart(index);
  story_.OnDisconnected(index);
  if (story_.IsDone(index)) return OnLinkEnded(index, /*is_empty=*/true);
  if (!story_.restartable() || story_.ending()) ArmTeardownTimer();
  SayGoodbye(index);
  const pb::Timeouts& times = world_.job.timeouts();
  const int64_t limit =
      node.link_closed ? 0 : times.grace_ms() + times.teardown_ms() + kTeardownSlackMs;
  world_.timeline.After(limit, &process_, [this, index, call = ++node.calls] {
    if (nodes_[index].calls == call) OnLinkEnded(index, nodes_[index].keeper_ended);
  });
}

void FrontEnd::OnLinkClosed(NodeVisit& visit, bool keeper_ended) {
  const std::optional<uint32_t> index = IndexOf(visit);
  if (!index) return;
  nodes_[*index].link_closed = true;
  nodes_[*index].keeper_ended = keeper_ended;
  if (!nodes_[*index].stream_ended) return OnStreamEnd(visit);
  if (running_) OnLinkEnded(*index, keeper_ended);
}

void FrontEnd::OnLinkEnded(size_t index, bool is_empty) {
  NodeState& node = nodes_[index];
  if (std::exchange(node.ended, true)) return;
  node.is_empty = is_empty;
  ++node.calls;
  Say([&] { return "the link to " + world_.NameOf(static_cast<Place>(index)) + " has ended"; });
  if (!story_.IsDone(index)) story_.OnLost(index, "the connection to it broke off", "");
  TryAgain(index);
  EndIfAllEnded();
}

// --- Nodes that are not there ---

void FrontEnd::Abandon(size_t index) {
  NodeState& node = nodes_[index];
  if (node.ended || node.stream_ended) return;
  Say([&] { return "abandons " + world_.NameOf(static_cast<Place>(index)); });
  SayGoodbye(index);
  world_.timeline.After(1, &process_, [this, &visit = *node.client] { OnStreamEnd(visit); });
}

// Or the abort: for the keeper both are end of file.
void FrontEnd::SayGoodbye(size_t index) {
  NodeState& node = nodes_[index];
  if (node.client == nullptr || std::exchange(node.over, true)) return;
  NodeVisit& visit = *node.client;
  const int64_t arrival =
      world_.network.Send(visit.down(), world_.network.front_end(), visit.node());
  world_.timeline.At(arrival, &visit.keeper(), [&visit] { visit.OnFrontEndEof(); });
}

void FrontEnd::TryAgain(size_t index) {
  if (!story_.restartable() || story_.ending() || connector_stopped_) return;
  if (index == prepare_.rendezvous_node()) return;
  if (std::exchange(nodes_[index].trying, true)) return;
  world_.timeline.After(world_.random.Between(500, 15'000), &process_,
                        [this, index] { Attempt(static_cast<uint32_t>(index)); });
}

void FrontEnd::Attempt(uint32_t index) {
  NodeState& node = nodes_[index];
  node.trying = false;
  if (connector_stopped_ || visits_again_ == kMostVisits) return;
  world_.timeline.After(kConnectMs, &process_, [this, index] {
    if (connector_stopped_ || visits_again_ == kMostVisits) return;
    if (index == prepare_.rendezvous_node()) return;
    if (!Reach(index)) return TryAgain(index);
    ++visits_again_;
    Say([&] { return "reaches " + world_.NameOf(index) + " anew"; });
    Prepare(index);
  });
}

void FrontEnd::OnPreparedAgain(uint32_t index, bool ok) {
  NodeState& node = nodes_[index];
  if (story_.ending()) return SayGoodbye(index);
  if (!ok) {
    SayGoodbye(index);
    return TryAgain(index);
  }
  node.prepared = true;
  node.stream_ended = node.ended = node.is_empty = node.awaits_move = false;
  story_.OnConnected(index);
  RunNode(index);
}

// --- Silence ---

void FrontEnd::RenewAll() {
  for (const NodeState& node : nodes_) {
    if (node.client == nullptr || node.over || SilenceOf(node, Now()) >= dead_after()) continue;
    Renew(*node.client, node.heard_us);
  }
  world_.timeline.After(kRenewEveryMs, &process_, [this] { RenewAll(); });
}

void FrontEnd::Renew(NodeVisit& visit, std::optional<uint64_t> heard_us) {
  Tell(visit, visit.threads(), [this, &visit, heard_us, sent = world_.timeline.now()] {
    const uint64_t clock_us = visit.Renew(heard_us, sent);
    const int64_t arrival =
        world_.network.Send(visit.up(), visit.node(), world_.network.front_end());
    world_.timeline.At(arrival, &process_, [this, &visit, clock_us] {
      if (const auto index = IndexOf(visit)) nodes_[*index].heard_us = clock_us;
    });
  });
}

void FrontEnd::Watch() {
  const Clock::time_point now = Now();
  if (watch_expiry_ != Clock::time_point() && now - watch_expiry_ > dead_after() / 4) {
    for (NodeState& node : nodes_) {
      node.heard_at = now;
      if (node.listening_since) node.listening_since = now;
    }
  }
  WatchSilence(now);
  if (process_.gone) return;
  MoveIfHostIsGone();
  watch_expiry_ = Now() + milliseconds(kWatchEveryMs);
  world_.timeline.After(kWatchEveryMs, &process_, [this] { Watch(); });
}

void FrontEnd::WatchSilence(Clock::time_point now) {
  bool any_heard = false;
  bool any_silent = false;
  for (size_t i = 0; i < nodes_.size(); ++i) {
    NodeState& node = nodes_[i];
    if (!node.is_heard()) continue;
    const bool silent = SilenceOf(node, now) >= dead_after();
    (silent ? any_silent : any_heard) = true;
    if (silent) StopIfLostAtStart(i);
    if (silent && story_.epoch() > 0 && !story_.IsMember(i)) Abandon(i);
    // gRPC's pings are not answered (proto/wire/channel.cc).
    if (SilenceOf(node, now) >= world_.job.link_silent) OnStreamEnd(*node.client);
  }
  if (any_heard || !any_silent) return;
  for (size_t i = 0; i < nodes_.size(); ++i) {
    if (nodes_[i].is_heard()) story_.OnLost(i, "nothing was heard of it", "");
  }
  GiveUpWaiting();
}

void FrontEnd::StopIfLostAtStart(size_t index) {
  const bool decides = index == prepare_.rendezvous_node();
  if (story_.epoch() > 0 || story_.ending() || (story_.restartable() && !decides)) return;
  const pb::Cause cause =
      MakeCause(pb::Cause::NODE_LOST, static_cast<uint32_t>(index), ExitCode::kUnavailable,
                world_.NameOf(static_cast<Place>(index)) + " was lost at the start");
  story_.OnLostAtStart(cause);
  connector_stopped_ = true;
  for (size_t i = 0; i < nodes_.size(); ++i) {
    if (i != index) SendStop(i, cause);
  }
  ArmTeardownTimer();
}

void FrontEnd::SendStop(size_t index, const pb::Cause& cause) {
  const NodeState& node = nodes_[index];
  if (!node.is_heard() || node.over) return;
  Tell(*node.client, [&visit = *node.client, cause = std::make_shared<pb::Cause>(cause)] {
    visit.Stop(*cause, /*kill_now=*/false);
  });
}

}  // namespace dslaunch::sim
