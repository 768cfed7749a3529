// Tracks the nodes that have joined, their sessions and the messages to send to them. Also
// implements the barriers at which the job waits for the nodes.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/deadline.h"
#include "base/exit_code.h"
#include "base/text/joined_range.h"
#include "proto/rendezvous.pb.h"
#include "rendezvous/quorum.h"

namespace dslaunch {

// The number of an agent's connection, called a session. The caller chooses the number and never
// reuses it.
using SessionId = uint64_t;

// A message for the agent of a session.
struct Outgoing {
  SessionId session = 0;
  pb::RendezvousMessage message;
  bool end_session = false;  // whether the session ends after this message
};

// The state of a node in the rendezvous: its session, its membership and its part in the attempt.
struct Participant {
  SessionId session = 0;
  bool has_joined = false;
  Clock::time_point last_seen;
  bool suspect = false;
  std::optional<uint64_t> lost_in;  // attempt in which the node was lost; nullopt if it is not lost
  bool leaving = false;             // whether the node cannot continue, and tears down by itself
  bool front_end_link_is_broken = false;  // whether the node's connection to the front end broke
  bool is_unfit = false;  // whether the node's own check failed before the next attempt
  // Whether some processes could not be ended, so that the node gets no new ranks.
  bool has_left_processes = false;
  bool torn_down = false;
  bool saved = false;   // whether the ranks saved, as reported in TornDown
  bool drained = true;  // false from Drain to the node's answer
  // State of the current attempt.
  bool in_attempt = false;  // whether the node has ranks in the attempt
  bool ready = false;
  bool finished = false;
  uint32_t first_rank = 0;
  std::set<uint32_t> tolerated;  // ranks of this node that were lost while the other ranks continue
  // Declared last, so that the fields read for every message and barrier are close together in
  // memory.
  Member member;

  // Returns whether the node has left the job permanently and is empty, so that another agent of
  // the node may join.
  bool HasLeft() const { return leaving && torn_down; }
  // Returns whether the node is drained; a node that leaves is drained once it is torn down.
  // Precondition: the attempt is draining.
  bool IsDrained() const { return leaving ? torn_down : drained; }
  bool IsUsable() const { return !lost_in && !leaving && !has_left_processes; }
  bool HasRank(uint32_t rank) const { return in_attempt && rank - first_rank < member.slots; }
};

// Stores the newest participant of each node, indexed by node, so that finding the sender of a
// message takes constant time for any number of nodes.
class Roster {
 public:
  // Begins without participants. `nodes` must outlive the roster. `own_node` is the node that gets
  // the notices for the user; `attempt` is the number of earlier attempts.
  Roster(const std::vector<pb::Node>& nodes, uint32_t own_node, uint64_t attempt)
      : nodes_(nodes), own_node_(own_node), attempt_(attempt), participants_(nodes.size()) {}
  Roster(const Roster&) = delete;

  Participant& operator[](uint32_t node_index) { return participants_[node_index]; }
  const Participant& operator[](uint32_t node_index) const { return participants_[node_index]; }
  // Returns the participants that have joined, in hostfile order.
  JoinedRange<Participant> Joined() { return {participants_.data(), participants_.size()}; }
  JoinedRange<const Participant> Joined() const {
    return {participants_.data(), participants_.size()};
  }
  // Returns the participant of the rendezvous' own node; nullptr if it has not joined or is lost.
  const Participant* Own() const;
  // Returns the participant of a session; nullptr if it is lost or has not joined.
  Participant* Find(SessionId session);
  // Returns the participant that has this rank in the attempt; nullptr if no participant has it.
  const Participant* OwnerOf(uint32_t rank) const;
  std::vector<Member> UsableMembers() const;
  const std::string& NodeName(uint32_t node_index) const { return nodes_[node_index].name(); }

  // Replaces the node's participant by a new one and removes the old participant's session. Returns
  // whether another node, or an earlier agent of this node, had the same identity.
  bool Add(SessionId session, Member member, Clock::time_point now);
  // Marks a participant as lost in this attempt and removes its session.
  void Lose(Participant& participant);

  // Refuses the session of a lost participant with `cause`. RefuseIfFenced() then refuses each
  // further message of the session.
  void Fence(SessionId session, const pb::Cause& cause);

  // Queues a refusal if Fence() was called for the session. Returns whether it was called.
  bool RefuseIfFenced(SessionId session);

  // Undoes Fence(), because the session has ended.
  void ForgetFence(SessionId session) { fenced_.erase(session); }

  // Returns the number of the newest attempt with ranks; 0 before the first attempt.
  uint64_t attempt() const { return attempt_; }
  // Increments attempt() and removes the ranks from all participants.
  void BeginAttempt();

  // Returns a cause that belongs to the current attempt and names this node.
  pb::Cause MakeNodeCause(pb::Cause::Kind kind, uint32_t node_index, ExitCode code,
                          std::string message) const;
  // Returns a cause with the message "node2 was lost: `why`; node3 too" for the nodes in `lost`.
  // Precondition: `lost` is not empty.
  pb::Cause LossOf(const std::vector<Participant*>& lost, const std::string& why) const;

  // Queues a message for a session. `end_session` also ends the session after the message.
  void Send(SessionId session, pb::RendezvousMessage message, bool end_session = false);

  // Queues a refusal with `cause` and ends the session.
  void Refuse(SessionId session, const pb::Cause& cause);

  // Queues a message for every participant that has joined and is not lost.
  void Broadcast(const pb::RendezvousMessage& message, bool end_session = false);

  // Queues a notice for the user to the own node. Does nothing if Own() is nullptr.
  void Notify(const std::string& text, pb::Notice::Standstill standstill = pb::Notice::UNCHANGED);

  // Queues the endpoints of the agents of `voters`, at most 256, for the node `only`; for every
  // participant if `only` is nullptr. Omits voters that have not joined or are lost.
  void SendPeers(const std::vector<uint32_t>& voters, const Participant* only = nullptr);

  // Removes and returns the queued messages, in order.
  std::vector<Outgoing> TakeOutgoing() { return std::exchange(out_, {}); }

 private:
  const std::vector<pb::Node>& nodes_;
  const uint32_t own_node_;
  uint64_t attempt_;
  std::vector<Participant> participants_;
  std::unordered_set<std::string> identities_;  // identities of all nodes that have joined
  // Nodes by session, for participants that are not lost.
  std::unordered_map<SessionId, uint32_t> sessions_;
  // Open sessions of lost participants, with the causes of the losses.
  std::map<SessionId, pb::Cause> fenced_;
  std::vector<Outgoing> out_;
};

// Tracks the job's phase and counts the participants for which the phase waits, so that testing
// whether it is over takes constant time.
class Barrier {
 public:
  enum class Phase { kJoining, kStarting, kRunning, kDraining, kWaiting, kStopping, kCompleted };

  Phase phase() const { return phase_; }
  // Returns whether an attempt is starting or running.
  bool InAttempt() const { return phase_ == Phase::kStarting || phase_ == Phase::kRunning; }

  // Returns whether the phase waits for no participant any more.
  bool IsOpen() const { return awaited_ == 0; }
  // Enters a phase and counts the participants to wait for. Counts them again if `phase` is the
  // current phase.
  void Enter(Phase phase, const Roster& roster);
  // Calls `change`, which changes the participant's state. If the barrier waited for the
  // participant and no longer does, reduces the number of awaited participants.
  template <class Change>
  void Update(const Participant& participant, Change change) {
    const bool before = IsAwaited(participant);
    change();
    if (before && !IsAwaited(participant)) --awaited_;
  }

 private:
  // Returns whether the current phase waits for the participant.
  bool IsAwaited(const Participant& participant) const;

  Phase phase_ = Phase::kJoining;
  size_t awaited_ = 0;
};

}  // namespace dslaunch
