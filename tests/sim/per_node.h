// A job of one command on each node: the product's Admission and MemberCores between the front end,
// which is node 0's command, and the agents of the other nodes. Here is what carries their messages
// and actions out in virtual time, and what goes wrong with them.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/per_node/member_core.h"
#include "cli/per_node/per_node_admission.h"
#include "tests/sim/network.h"
#include "tests/sim/node_incarnation.h"
#include "tests/sim/virtual_time.h"
#include "tests/sim/world.h"

namespace dslaunch::sim {

class PerNode;

// A node's own command, from its start to its end.
class Member {
 public:
  // `number`: counts the commands of the job.
  Member(PerNode& per_node, World& world, size_t number, uint32_t node);
  Member(const Member&) = delete;

  bool operator<(const Member& other) const { return number_ < other.number_; }
  uint32_t node() const { return node_; }
  Process& process() { return process_; }
  NodeIncarnation* agent() const { return agent_; }
  std::optional<int> exit_code() const { return exit_code_; }  // nullopt: killed, or it runs

  void Start() { Carry(core_.Start()); }
  // A message of node 0, or the end of the connection to it.
  void OnMessage(const pb::NodeMessage& message) { Carry(core_.OnMessage(message, Now())); }
  void OnClosed() { Carry(core_.OnClosed("end of file", Now())); }
  // An event of the agent of this node's that serves.
  void OnEvent(const NodeIncarnation& agent, const pb::NodeEvent& event);

  // Faults.
  void Interrupt(int signal_number) { Carry(core_.OnSignal(signal_number, Now())); }
  // The command is killed, or its machine loses power.
  void Kill();

 private:
  void Carry(MemberActions actions);
  void Do(member_action::Log& line);
  void Do(member_action::Dial&);
  void Do(member_action::Send& send);
  void Do(member_action::Disconnect&);
  void Do(member_action::StartAgent& start);
  void Do(member_action::ServeAgent&) { serves_ = true; }
  void Do(member_action::EndStream&) { CloseAgentsInput(); }
  void Do(member_action::CloseStream&);
  void Do(member_action::RenewLease&);
  void Do(member_action::SignalRanks&) {}
  void Do(member_action::StopAgent& stop);
  void Do(member_action::AwaitAgentEnd& await);
  void Do(member_action::ShowRanks&) {}
  void Do(member_action::SetTimer& set);
  void Do(member_action::End& end);

  void CloseAgentsInput();
  void AwaitAgentEndBy(int64_t deadline);
  Clock::time_point Now() const;
  std::string name() const;

  PerNode& per_node_;
  World& world_;
  const size_t number_;
  const uint32_t node_;
  Process process_;
  MemberCore core_;
  NodeIncarnation* agent_ = nullptr;
  bool serves_ = false;  // the agent's stream and events
  std::array<uint64_t, kMemberTimers> timer_numbers_{};
  std::optional<int> exit_code_;
};

// Node 0's side of the job: who joins, and the connections to those who have.
class PerNode {
 public:
  explicit PerNode(World& world);

  // Starts node 0's command and the others, some of them late. The front end starts once enough
  // nodes have joined.
  void Start();

  // --- The front end ---

  // Asks a node for its agent. Calls `then` with the agent, or with null if the node has not joined
  // or does not answer in time.
  void Connect(uint32_t node, std::function<void(NodeIncarnation*)> then);
  // Ends what the front end sends to an agent; with `abort` its output is not awaited either.
  void EndStream(const NodeIncarnation& agent, bool abort);
  // The front end has ended; nullopt: it was killed.
  void OnFrontEndEnd(std::optional<int> exit_code);

  // --- Members ---

  // Connects a member; false: nothing listens.
  bool Accept(Member& member);
  void Receive(Member& member, const pb::NodeMessage& message);
  void OnClosed(Member& member);
  void OnEnd(Member& member, const member_action::End& end);
  // An event of an agent, for the command of its node.
  void OnEvent(const NodeIncarnation& agent, const pb::NodeEvent& event);

  // Plans the faults of the job.
  void PlanFaults();
  // Every command has ended.
  bool is_over() const;
  const std::vector<std::unique_ptr<Member>>& members() const { return members_; }
  uint64_t joined_late() const { return joined_late_; }

 private:
  // The order of pointers would differ between two runs of a seed.
  struct Older {
    bool operator()(const Member* a, const Member* b) const { return *a < *b; }
  };
  struct Connection {
    PeerId id = 0;
    Wire up;    // to node 0
    Wire down;  // from it
    bool has_joined = false;
    bool was_refused = false;
    std::function<void(NodeIncarnation*)>
        then;  // callback of Connect, until the agent has answered
  };

  void Launch(uint32_t node);
  void Reconsider();
  void Send(Member& member, const pb::NodeMessage& message);
  void Refuse(Member& member, const Error& error);
  // Ends the connection on node 0's side.
  void Drop(Member& member);
  void Answer(Connection& connection, NodeIncarnation* agent);
  Member* MemberAt(uint32_t node);  // member at the node's place; null if the place is free
  Member* NewestOf(uint32_t node);
  void Break(Member& member);      // the connection
  void LosePower(Member& member);  // its machine; the connection ends later
  void Fault();

  World& world_;
  Admission admission_;
  std::vector<std::unique_ptr<Member>> members_;  // oldest first
  std::map<Member*, Connection, Older> connections_;
  PeerId next_peer_ = 1;
  bool listens_ = true;
  bool has_started_ = false;  // the front end
  uint64_t joined_late_ = 0;
  std::optional<int> job_exit_code_;
};

}  // namespace dslaunch::sim
