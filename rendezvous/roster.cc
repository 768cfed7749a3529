#include "rendezvous/roster.h"

#include <algorithm>
#include <utility>

#include "net/addresses.h"
#include "proto/wire/cause.h"

namespace dslaunch {
namespace {

constexpr size_t kMostNamed = 5;  // most node names to list in a sentence

// Limit of the nodes that may host the next rendezvous. Their addresses are sent to every node, so
// without a limit the traffic would grow with the square of the number of nodes.
constexpr size_t kMostPeers = 256;

}  // namespace

const Participant* Roster::Own() const {
  const Participant& own = participants_[own_node_];
  return own.has_joined && !own.lost_in ? &own : nullptr;
}

Participant* Roster::Find(SessionId session) {
  const auto known = sessions_.find(session);
  return known == sessions_.end() ? nullptr : &participants_[known->second];
}

const Participant* Roster::OwnerOf(uint32_t rank) const {
  for (const Participant& participant : Joined()) {
    if (participant.HasRank(rank)) return &participant;
  }
  return nullptr;
}

std::vector<Member> Roster::UsableMembers() const {
  std::vector<Member> members;
  members.reserve(participants_.size());
  for (const Participant& participant : Joined()) {
    if (participant.IsUsable()) members.push_back(participant.member);
  }
  return members;
}

bool Roster::Add(SessionId session, Member member, Clock::time_point now) {
  Participant& participant = participants_[member.node_index];
  sessions_.erase(participant.session);
  participant = {};
  participant.has_joined = true;
  participant.session = session;
  participant.last_seen = now;
  sessions_.emplace(session, member.node_index);
  participant.member = std::move(member);
  return !identities_.insert(participant.member.identity).second;
}

void Roster::Lose(Participant& participant) {
  participant.lost_in = attempt_;
  sessions_.erase(participant.session);
}

void Roster::Fence(SessionId session, const pb::Cause& cause) {
  Refuse(session, cause);
  fenced_.emplace(session, cause);
}

bool Roster::RefuseIfFenced(SessionId session) {
  const auto fenced = fenced_.find(session);
  if (fenced == fenced_.end()) return false;
  Refuse(session, fenced->second);
  return true;
}

void Roster::BeginAttempt() {
  ++attempt_;
  for (Participant& participant : Joined()) {
    participant.in_attempt = participant.ready = participant.finished = false;
    participant.tolerated.clear();
  }
}

pb::Cause Roster::MakeNodeCause(pb::Cause::Kind kind, uint32_t node_index, ExitCode code,
                                std::string message) const {
  pb::Cause cause = MakeCause(kind, node_index, code, std::move(message));
  cause.set_attempt(attempt_);
  return cause;
}

pb::Cause Roster::LossOf(const std::vector<Participant*>& lost, const std::string& why) const {
  const uint32_t first = lost.front()->member.node_index;
  std::string text = NodeName(first) + " was lost: " + why;
  for (size_t i = 1; i < lost.size() && i < kMostNamed; ++i)
    text += (i == 1 ? "; " : ", ") + NodeName(lost[i]->member.node_index);
  if (lost.size() > kMostNamed)
    text += " and " + std::to_string(lost.size() - kMostNamed) + " more";
  if (lost.size() > 1) text += " too";
  return MakeNodeCause(pb::Cause::NODE_LOST, first, ExitCode::kUnavailable, std::move(text));
}

void Roster::Send(SessionId session, pb::RendezvousMessage message, bool end_session) {
  message.set_attempt(attempt_);
  out_.push_back({session, std::move(message), end_session});
}

void Roster::Refuse(SessionId session, const pb::Cause& cause) {
  pb::RendezvousMessage message;
  *message.mutable_refused()->mutable_cause() = cause;
  Send(session, std::move(message), /*end_session=*/true);
}

void Roster::Broadcast(const pb::RendezvousMessage& message, bool end_session) {
  for (const Participant& participant : Joined()) {
    if (!participant.lost_in) Send(participant.session, message, end_session);
  }
}

void Roster::Notify(const std::string& text, pb::Notice::Standstill standstill) {
  const Participant* const own = Own();
  if (own == nullptr) return;
  pb::RendezvousMessage message;
  message.mutable_notice()->set_message(text);
  message.mutable_notice()->set_standstill(standstill);
  Send(own->session, std::move(message));
}

void Roster::SendPeers(const std::vector<uint32_t>& voters, const Participant* only) {
  pb::RendezvousMessage message;
  const Participant* host = nullptr;
  for (const uint32_t voter : voters) {
    if (std::cmp_greater_equal(message.peers().peers_size(), kMostPeers)) break;
    const Participant& participant = participants_[voter];
    if (!participant.has_joined || participant.lost_in || participant.member.link_port == 0)
      continue;
    if (voter == own_node_) host = &participant;
    pb::Peer& peer = *message.mutable_peers()->add_peers();
    peer.set_node_index(voter);
    const std::string& address = participant.member.address;
    peer.set_endpoint(JoinHostPort(address.empty() ? "127.0.0.1" : address,
                                   static_cast<int>(participant.member.link_port)));
  }
  // Each node knows the rendezvous node by the address through which it connected, so that address
  // replaces the general address.
  const auto own =
      std::ranges::find_if(*message.mutable_peers()->mutable_peers(),
                           [&](const pb::Peer& peer) { return peer.node_index() == own_node_; });
  for (const Participant& participant : Joined()) {
    if (participant.lost_in || (only != nullptr && only != &participant)) continue;
    if (host != nullptr && !participant.member.reached_at.empty()) {
      own->set_endpoint(
          JoinHostPort(participant.member.reached_at, static_cast<int>(host->member.link_port)));
    }
    Send(participant.session, message);
  }
}

void Barrier::Enter(Phase phase, const Roster& roster) {
  phase_ = phase;
  awaited_ = static_cast<size_t>(std::ranges::count_if(
      roster.Joined(), [this](const Participant& participant) { return IsAwaited(participant); }));
}

bool Barrier::IsAwaited(const Participant& participant) const {
  switch (phase_) {
    case Phase::kStarting:
      return participant.in_attempt && !participant.ready;
    case Phase::kRunning:
      return participant.in_attempt && !participant.finished;
    case Phase::kDraining:
      return !participant.lost_in && !participant.IsDrained();
    case Phase::kStopping:
      return !participant.lost_in && !participant.torn_down;
    default:
      return false;
  }
}

}  // namespace dslaunch
