#include "tests/sim/rendezvous.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "tests/sim/front_end.h"
#include "tests/sim/node_incarnation.h"
#include "tests/sim/world.h"

namespace dslaunch::sim {
namespace {

constexpr int64_t kAgainOneIn = 8;
constexpr size_t kMostReceived = 500;

}  // namespace

Rendezvous::Rendezvous(World& world, NodeIncarnation& host, CoordinatorOptions options,
                       std::optional<uint32_t> lost_node)
    : world_(world),
      host_(host),
      lost_node_(lost_node),
      coordinator_(std::move(options), host.Now()),
      known_attempt_(coordinator_.attempt()) {}

template <class MakeText>
void Rendezvous::Note(MakeText make_text) const {
  if (world_.trace.on()) {
    world_.trace.Add(world_.timeline.now(), "rendezvous on " + world_.NameOf(host_.node()),
                     make_text());
  }
}

Clock::time_point Rendezvous::Now() {
  coordinator_.SetBootTime(host_.BootNow());
  return host_.Now();
}

bool Rendezvous::is_open() const { return open_ && !host_.threads().gone; }

SessionId Rendezvous::Attend(NodeIncarnation& agent) {
  sessions_.push_back({&agent, {}, {}, true, true});
  return sessions_.size();
}

void Rendezvous::Handle(SessionId id, pb::AgentMessage message) {
  Session& session = At(id);
  if (!session.client_open) return;
  const int64_t arrival = world_.network.Send(session.up, session.agent->node(), host_.node());
  world_.timeline.At(arrival, &host_.threads(),
                     [this, id, message = std::move(message)] { Receive(id, message); });
}

void Rendezvous::Receive(SessionId id, const pb::AgentMessage& message) {
  if (!is_open() || !At(id).server_open) return;
  if (!message.has_heartbeat() && received_.size() < kMostReceived)
    received_.push_back({id, message});
  if (!message.has_heartbeat())
    Note([&] { return "hears session " + std::to_string(id) + ": " + message.ShortDebugString(); });
  At(id).leaves |= message.has_stop();
  At(id).torn_down |= message.has_torn_down();
  if (message.has_drained() || message.has_torn_down()) {
    const NodeIncarnation& agent = *At(id).agent;
    world_.invariants.OnSaidEmpty(message.attempt(), agent.node(), agent.index());
  }
  HandOver(id, message);
  if (world_.random.OneIn(kAgainOneIn)) ReceiveAgain();
}

void Rendezvous::ReceiveAgain() {
  if (received_.empty()) return;
  const auto which = world_.random.Between(0, static_cast<int64_t>(received_.size()) - 1);
  const Received again = received_[static_cast<size_t>(which)];
  if (again.message.attempt() >= coordinator_.attempt() || !At(again.session).server_open) return;
  if (world_.network.IsCut(At(again.session).agent->node(), host_.node())) return;
  Note([&] {
    return "hears once more, from " + world_.NameOf(At(again.session).agent->node()) + ": " +
           again.message.ShortDebugString();
  });
  HandOver(again.session, again.message);
}

void Rendezvous::HandOver(SessionId id, const pb::AgentMessage& message) {
  if (world_.bug != PlantedBug::kNoFence || message.has_join() || message.attempt() == 0)
    return Deliver(coordinator_.OnMessage(id, message, Now()));
  pb::AgentMessage fresh = message;
  fresh.set_attempt(coordinator_.attempt());
  SessionId newest = id;
  for (SessionId other = id + 1; other <= sessions_.size(); ++other) {
    if (At(other).agent->node() == At(id).agent->node() && At(other).server_open) newest = other;
  }
  Deliver(coordinator_.OnMessage(newest, fresh, Now()));
}

void Rendezvous::Disconnect(SessionId id) {
  if (!is_open() || !std::exchange(At(id).server_open, false)) return;
  Note([&] { return "session " + std::to_string(id) + " is over"; });
  Deliver(coordinator_.OnDisconnect(id, Now()));
}

void Rendezvous::Leave(SessionId id) { LeaveAfter(id, 0); }

void Rendezvous::BreakOff(SessionId id) {
  LeaveAfter(id, world_.random.OneIn(2) ? world_.job.timeouts().dead_ms() : 0);
}

void Rendezvous::LeaveAfter(SessionId id, int64_t delay_ms) {
  Session& session = At(id);
  if (!std::exchange(session.client_open, false)) return;
  const int64_t arrival = world_.network.Send(session.up, session.agent->node(), host_.node());
  world_.timeline.At(arrival + delay_ms, &host_.threads(), [this, id] { Disconnect(id); });
}

void Rendezvous::EndAtClient(SessionId id) {
  Session& session = At(id);
  const int64_t arrival = world_.network.Send(session.down, host_.node(), session.agent->node());
  world_.timeline.At(arrival, &session.agent->loop(), [this, id] {
    if (std::exchange(At(id).client_open, false)) At(id).agent->OnRendezvousEnd(*this, id);
  });
}

void Rendezvous::Reset(SessionId id) {
  if (!At(id).client_open || !is_open()) return;
  EndAtClient(id);
  const int64_t arrival = world_.network.Send(At(id).up, At(id).agent->node(), host_.node());
  world_.timeline.At(arrival, &host_.threads(), [this, id] { Disconnect(id); });
}

void Rendezvous::Tick() {
  if (is_open()) Deliver(coordinator_.OnTick(Now()));
}

void Rendezvous::Close() {
  if (!std::exchange(open_, false)) return;
  for (SessionId id = 1; id <= sessions_.size(); ++id) EndAtClient(id);
}

void Rendezvous::Deliver(std::vector<Outgoing> messages) {
  Check(messages);
  for (Outgoing& one : messages) {
    Session& session = At(one.session);
    if (!session.server_open) continue;
    if (!one.message.has_heartbeat()) {
      Note([&] {
        return "tells session " + std::to_string(one.session) + " (" +
               world_.NameOf(session.agent->node()) + "): " + one.message.ShortDebugString();
      });
    }
    const int64_t arrival = world_.network.Send(session.down, host_.node(), session.agent->node());
    if (one.message.has_heartbeat()) {
      world_.timeline.At(arrival, &session.agent->threads(),
                         [this, id = one.session,
                          heartbeat = std::make_shared<pb::Heartbeat>(one.message.heartbeat())] {
                           if (At(id).client_open) At(id).agent->OnHeartbeat(*this, id, *heartbeat);
                         });
    }
    world_.timeline.At(arrival, &session.agent->loop(),
                       [this, id = one.session, message = std::move(one.message)] {
                         if (At(id).client_open)
                           At(id).agent->OnRendezvousMessage(*this, id, message);
                       });
    if (!one.end_session) continue;
    EndAtClient(one.session);
    world_.timeline.At(arrival, &host_.threads(), [this, id = one.session] { Disconnect(id); });
  }
}

void Rendezvous::Check(const std::vector<Outgoing>& messages) {
  for (const Outgoing& one : messages) {
    if (one.message.has_assignment() && one.message.attempt() > known_attempt_)
      CheckNewAttempt(one.message.attempt(), messages);
    CheckReason(one.message);
    if (one.message.refused().cause().message().find("joined already") != std::string::npos)
      CheckRefusal(one.session);
  }
}

void Rendezvous::CheckRefusal(SessionId refused) {
  const NodeIncarnation& agent = *At(refused).agent;
  for (SessionId id = 1; id < refused; ++id) {
    const Session& earlier = At(id);
    if (earlier.agent->node() == agent.node() && earlier.server_open && earlier.leaves &&
        earlier.torn_down && coordinator_.phase() < Coordinator::Phase::kStopping)
      world_.invariants.Fail(world_.NameOf(agent.node()) +
                             " is refused because of its last agent, which has left");
  }
}

void Rendezvous::CheckReason(const pb::RendezvousMessage& message) {
  if (message.has_drain()) {
    drained_attempt_ = message.attempt();
    world_.invariants.OnCause(message.drain().cause());
    if (message.drain().reason().empty()) world_.invariants.Fail("a restart without a reason");
  }
  if (message.has_stop()) {
    world_.invariants.OnCause(message.stop().cause());
    if (message.stop().cause().kind() == pb::Cause::NONE)
      world_.invariants.OnDecidedSuccess(message.attempt());
  }
  if (message.has_refused()) world_.invariants.OnCause(message.refused().cause());
  if (message.has_completed()) world_.invariants.OnCause(message.completed().cause());
}

void Rendezvous::CheckNewAttempt(uint64_t attempt, const std::vector<Outgoing>& messages) {
  const bool is_first = known_attempt_ == 0 || (lost_node_ && !drained_attempt_);
  // A node that has left, or has announced that it leaves, need not be drained.
  const bool was_to_be_drained = std::ranges::any_of(
      members_, [this](SessionId id) { return At(id).server_open && !At(id).leaves; });
  if (!is_first && was_to_be_drained && drained_attempt_ != known_attempt_)
    world_.invariants.Fail("attempt " + std::to_string(known_attempt_) + " was never drained");
  known_attempt_ = attempt;
  members_.clear();
  std::vector<std::pair<uint32_t, pb::Assignment>> assignments;
  for (const Outgoing& one : messages) {
    if (!one.message.has_assignment() || one.message.attempt() != attempt) continue;
    members_.push_back(one.session);
    assignments.emplace_back(At(one.session).agent->node(), one.message.assignment());
  }
  world_.invariants.OnFormed(attempt, assignments);
  const bool in_time =
      lost_node_ && !world_.machines[*lost_node_].stood_still && !host_.machine().stood_still;
  if (is_first && in_time) world_.invariants.OnFormedAfterFailover(attempt, *lost_node_);
  const bool may_judge = std::ranges::none_of(world_.machines, &Machine::stood_still);
  if (is_first && lost_node_ && world_.front_end->has_detached() && may_judge)
    world_.invariants.OnFormedAfterElection(attempt);
}

}  // namespace dslaunch::sim
