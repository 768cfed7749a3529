// Simulates the rendezvous of an agent: the real Coordinator behind a model of its server. The
// model adds the effects of network and machines: messages are delayed, sessions break off, and old
// messages arrive a second time.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "rendezvous/coordinator.h"
#include "tests/sim/network.h"
#include "tests/sim/virtual_time.h"

namespace dslaunch::sim {

class NodeIncarnation;
struct World;

class Rendezvous {
 public:
  // `lost_node` is the node whose lost rendezvous this one replaces; nullopt for the first
  // rendezvous of a job.
  Rendezvous(World& world, NodeIncarnation& host, CoordinatorOptions options,
             std::optional<uint32_t> lost_node);

  bool is_open() const;
  NodeIncarnation& host() { return host_; }

  // Begins the agent's stream and returns its session.
  SessionId Attend(NodeIncarnation& agent);
  // Sends a message of the agent on its stream.
  void Handle(SessionId session, pb::AgentMessage message);
  // Ends the agent's stream without another message.
  void Leave(SessionId session);
  // Handles the end of the agent's process. The host may treat it as a broken connection, whose
  // session it keeps for a while because the agent might resume it (rendezvous/server.cc).
  void BreakOff(SessionId session);

  // Checks the time limits; called at each beat of the host.
  void Tick();
  // Closes the rendezvous, for example because the host gives it up. Each agent is only notified
  // that its stream has ended. A host that loses power does not call this.
  void Close();

  // Resets the connection. Both ends notice the reset, each at its own time.
  void Reset(SessionId session);

 private:
  struct Session {
    NodeIncarnation* agent = nullptr;
    Wire up;
    Wire down;
    bool server_open = true;
    bool client_open = true;
    bool leaves = false;     // whether the agent has announced that it leaves
    bool torn_down = false;  // whether the agent has reported that its node is empty
  };
  struct Received {
    SessionId session;
    pb::AgentMessage message;
  };

  Session& At(SessionId session) { return sessions_[session - 1]; }
  void Receive(SessionId session, const pb::AgentMessage& message);
  // Delivers a random old message a second time.
  void ReceiveAgain();
  void HandOver(SessionId session, const pb::AgentMessage& message);
  void Disconnect(SessionId session);
  void EndAtClient(SessionId session);
  void LeaveAfter(SessionId session, int64_t delay_ms);
  void Deliver(std::vector<Outgoing> messages);
  void Check(const std::vector<Outgoing>& messages);
  void CheckReason(const pb::RendezvousMessage& message);
  // Checks the invariant "a node that has left and is empty may join again".
  void CheckRefusal(SessionId refused);
  void CheckNewAttempt(uint64_t attempt, const std::vector<Outgoing>& messages);
  // Returns the current time of the host's clock, and passes its boot time to the coordinator.
  Clock::time_point Now();
  template <class MakeText>
  void Note(MakeText make_text) const;

  World& world_;
  NodeIncarnation& host_;
  const std::optional<uint32_t> lost_node_;
  Coordinator coordinator_;
  bool open_ = true;
  std::deque<Session> sessions_;  // sessions by id - 1
  std::vector<Received> received_;
  uint64_t known_attempt_;
  std::vector<SessionId> members_;  // members of known_attempt_
  std::optional<uint64_t> drained_attempt_;
};

}  // namespace dslaunch::sim
