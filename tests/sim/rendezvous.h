// The rendezvous of an agent: the real Coordinator behind a model of its server. What the network
// and the machines do to it happens here: messages wait, sessions break off, old ones arrive
// once more.
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
  // `lost_node`: whose rendezvous this one follows.
  Rendezvous(World& world, NodeIncarnation& host, CoordinatorOptions options,
             std::optional<uint32_t> lost_node);

  bool is_open() const;
  NodeIncarnation& host() { return host_; }

  // The agent's side: a new stream; a message on it; its end without another message.
  SessionId Attend(NodeIncarnation& agent);
  void Handle(SessionId session, pb::AgentMessage message);
  void Leave(SessionId session);
  // The agent's process has ended. The host may take that for a broken connection, which it keeps
  // for a while because the agent might resume it (rendezvous/server.cc).
  void BreakOff(SessionId session);

  // The host's side: at each of its beats; and when it gives the rendezvous up, on which each agent
  // only learns that its stream is over. A host without power does not even do that.
  void Tick();
  void Close();

  // The connection is reset; both ends notice it, each in its time.
  void Reset(SessionId session);

 private:
  struct Session {
    NodeIncarnation* agent = nullptr;
    Wire up;
    Wire down;
    bool server_open = true;
    bool client_open = true;
    bool leaves = false;     // it has sent that it leaves
    bool torn_down = false;  // it has sent that its node is empty
  };
  struct Received {
    SessionId session;
    pb::AgentMessage message;
  };

  Session& At(SessionId session) { return sessions_[session - 1]; }
  void Receive(SessionId session, const pb::AgentMessage& message);
  // An old message arrives once more.
  void ReceiveAgain();
  void HandOver(SessionId session, const pb::AgentMessage& message);
  void Disconnect(SessionId session);
  void EndAtClient(SessionId session);
  void LeaveAfter(SessionId session, int64_t delay_ms);
  void Deliver(std::vector<Outgoing> messages);
  void Check(const std::vector<Outgoing>& messages);
  void CheckReason(const pb::RendezvousMessage& message);
  // "a node that has left and is empty may join again".
  void CheckRefusal(SessionId refused);
  void CheckNewAttempt(uint64_t attempt, const std::vector<Outgoing>& messages);
  // Returns the time of this machine's clock.
  Clock::time_point Now();
  template <class MakeText>
  void Note(MakeText make_text) const;

  World& world_;
  NodeIncarnation& host_;
  const std::optional<uint32_t> lost_node_;
  Coordinator coordinator_;
  bool open_ = true;
  std::deque<Session> sessions_;  // sessions by id, from 1
  std::vector<Received> received_;
  uint64_t known_attempt_;
  std::vector<SessionId> members_;  // members of that attempt
  std::optional<uint64_t> drained_attempt_;
};

}  // namespace dslaunch::sim
