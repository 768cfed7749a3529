// Simulates a job of one command on each node: the product's Admission and MemberCores between the
// front end, which is node 0's command, and the agents of the other nodes. These classes carry
// messages and actions out in virtual time, and inject faults.
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
  // `number` is the position of this command among the commands started so far.
  Member(PerNode& per_node, World& world, size_t number, uint32_t node);
  Member(const Member&) = delete;

  bool operator<(const Member& other) const { return number_ < other.number_; }
  uint32_t node() const { return node_; }
  Process& process() { return process_; }
  NodeIncarnation* agent() const { return agent_; }
  // Returns the exit code of the command; nullopt if it still runs or was killed.
  std::optional<int> exit_code() const { return exit_code_; }

  void Start() { Carry(core_.Start()); }
  // Handles a message of node 0's command.
  void OnMessage(const pb::NodeMessage& message) { Carry(core_.OnMessage(message, Now())); }
  // Handles the end of the connection to node 0's command.
  void OnClosed() { Carry(core_.OnClosed("end of file", Now())); }
  // Handles an event of an agent. Ignores agents other than the current one of this node.
  void OnEvent(const NodeIncarnation& agent, const pb::NodeEvent& event);

  // Injects a fault: the command receives a signal.
  void Interrupt(int signal_number) { Carry(core_.OnSignal(signal_number, Now())); }
  // Ends the command, as if it were killed or its machine lost power.
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
  bool serves_ = false;  // whether the command serves the agent's stream and events
  std::array<uint64_t, kMemberTimers> timer_numbers_{};
  std::optional<int> exit_code_;
};

// Node 0's side of the job: admits nodes and keeps the connections to their commands.
class PerNode {
 public:
  explicit PerNode(World& world);

  // Starts node 0's command and the other commands, some of them late. The front end starts once
  // enough nodes have joined.
  void Start();

  // --- The front end ---

  // Requests a node's agent. Calls `then` with the agent, or with nullptr if the node has not
  // joined or does not answer in time.
  void Connect(uint32_t node, std::function<void(NodeIncarnation*)> then);
  // Ends the front end's stream to an agent. With `abort`, the agent's output is not awaited
  // either.
  void EndStream(const NodeIncarnation& agent, bool abort);
  // Handles the front end's end. `exit_code`: nullopt if the front end was killed.
  void OnFrontEndEnd(std::optional<int> exit_code);

  // --- Members ---

  // Connects a member; returns false if node 0 does not listen or cannot be reached.
  bool Accept(Member& member);
  void Receive(Member& member, const pb::NodeMessage& message);
  void OnClosed(Member& member);
  void OnEnd(Member& member, const member_action::End& end);
  // Passes an event of an agent to the command of its node.
  void OnEvent(const NodeIncarnation& agent, const pb::NodeEvent& event);

  // Plans the faults of the job.
  void PlanFaults();
  // Returns whether every command has ended.
  bool is_over() const;
  const std::vector<std::unique_ptr<Member>>& members() const { return members_; }
  uint64_t joined_late() const { return joined_late_; }

 private:
  // Orders members by number, because the order of pointers would differ between two runs of a
  // seed.
  struct Older {
    bool operator()(const Member* a, const Member* b) const { return *a < *b; }
  };
  struct Connection {
    PeerId id = 0;
    Wire up;    // messages to node 0
    Wire down;  // messages from node 0
    bool has_joined = false;
    bool was_refused = false;
    std::function<void(NodeIncarnation*)>
        then;  // callback of Connect; empty once the agent has answered
  };

  void Launch(uint32_t node);
  void Reconsider();
  void Send(Member& member, const pb::NodeMessage& message);
  void Refuse(Member& member, const Error& error);
  // Ends the connection on node 0's side.
  void Drop(Member& member);
  void Answer(Connection& connection, NodeIncarnation* agent);
  // Returns the member that has joined as `node`; nullptr if there is none.
  Member* MemberAt(uint32_t node);
  // Returns the newest command of `node`; nullptr if no command was started on it.
  Member* NewestOf(uint32_t node);
  // Breaks the member's connection.
  void Break(Member& member);
  void LosePower(
      Member& member);  // cuts the power of the member's machine; the connection ends later
  void Fault();

  World& world_;
  Admission admission_;
  std::vector<std::unique_ptr<Member>> members_;  // oldest first
  std::map<Member*, Connection, Older> connections_;
  PeerId next_peer_ = 1;
  bool listens_ = true;
  bool has_started_ = false;  // whether the front end has started
  uint64_t joined_late_ = 0;
  std::optional<int> job_exit_code_;
};

}  // namespace dslaunch::sim
