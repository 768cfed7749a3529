// Simulates one start of supervisor and agent on a node, and the ranks that they run. The agent is
// the product's AgentCore, and the supervisor is the product's too (tests/sim/supervisor.h). This
// class carries out the agent's actions in virtual time. The disk and the log files are not
// simulated.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "agent/core/agent_action_queue.h"
#include "agent/core/agent_core.h"
#include "agent/node/heartbeat.h"
#include "proto/agent.pb.h"
#include "rendezvous/coordinator.h"
#include "tests/sim/network.h"
#include "tests/sim/supervisor.h"
#include "tests/sim/virtual_time.h"
#include "tests/sim/world.h"

namespace dslaunch::sim {

class Rendezvous;

class NodeIncarnation {
 public:
  // `own` has the decisions of this node's own command, or is nullopt if the node has no command.
  NodeIncarnation(World& world, size_t index, uint32_t node,
                  const std::optional<pb::OwnPart>& own = std::nullopt);
  NodeIncarnation(const NodeIncarnation&) = delete;

  uint32_t node() const { return node_; }
  size_t index() const { return index_; }
  // A node has three processes that can stall separately. Returns the agent's loop.
  Process& loop() { return loop_; }
  // Returns the process of the agent's other threads: its heart and the server of a rendezvous.
  Process& threads() { return threads_; }
  // Returns the supervisor's process.
  Process& supervisor() { return supervisor_.process(); }
  Clock::time_point Now() const;
  BootClock::time_point BootNow() const;
  Machine& machine() const;
  bool is_over() const { return supervisor_.gone() && loop_.gone; }
  Rendezvous* server() const { return server_; }

  // The functions below are calls of the front end, on the loop.
  // Prepares the job on this node. Returns false if the disk is full or the request is refused.
  bool Prepare(const pb::PrepareRequest& request);
  void Run(Rendezvous* rendezvous);
  void Stop(const pb::Cause& cause, bool kill_now);
  // Moves this node to another rendezvous. `rendezvous` is the rendezvous to join; nullptr if this
  // node opens a new one. Returns false if this node does not wait for another rendezvous.
  bool Failover(const pb::FailoverRequest& request, Rendezvous* rendezvous);
  void Detach();
  // Renews the lease; called on the agent's threads. Returns the agent's clock in microseconds.
  // `sent` is the time at which the front end sent the call, for the invariants.
  uint64_t Renew(std::optional<uint64_t> last_seen_us, int64_t sent);
  // Handles end of file on the supervisor's stdin, after the front end's goodbye, its abort or its
  // death.
  void OnFrontEndEof() { supervisor_.OnFrontEndEof(); }
  Wire& up() { return up_; }      // messages to the front end
  Wire& down() { return down_; }  // messages from the front end

  // Handles an event of the supervisor, on the loop.
  void OnSupervisorEvent(const pb::SupervisorEvent& event);
  // Handles the end of the front end's connection, which the supervisor carries, on the loop.
  void OnStreamOver();
  void OnSupervisorFinished();
  void OnSupervisorKilled();
  // Returns the time by which a node without contact to its front end must have begun to end its
  // ranks. Counted from the front end's last message that arrived, or from the time at which the
  // machine or the agent resumed.
  int64_t LeaseEndsBy();

  // The functions below handle messages of the rendezvous and the end of its stream, on the loop.
  void OnRendezvousMessage(const Rendezvous& from, SessionId session,
                           const pb::RendezvousMessage& message);
  void OnRendezvousEnd(const Rendezvous& from, SessionId session);
  // Handles a heartbeat on the agent's threads.
  void OnHeartbeat(const Rendezvous& from, SessionId session, const pb::Heartbeat& heartbeat);

  // Handles a vote of node `voter`. `number` identifies the vote among all votes of the voter.
  void OnVote(NodeIncarnation& voter, uint64_t number, const pb::Vote& vote);
  // Handles the end of the voter's connection, by which vote `number` is withdrawn.
  void OnVoterGone(const NodeIncarnation& voter, uint64_t number);
  // Handles the answer of `candidate` to this node's vote `number`.
  void OnVoteAnswer(const NodeIncarnation& candidate, uint64_t number,
                    const pb::VoteAnswer& answer);

  // The functions below inject faults of the node's processes and machine.
  void KillAgent();
  void KillSupervisor() { supervisor_.Kill(); }
  void KillBoth();
  void LosePower();
  // Restores the machine's power. Peers that still send to this incarnation are notified that it
  // has ended.
  void GetPowerBack();
  void ResetRendezvous();  // resets the connection to the rendezvous
  void ResetLink();        // resets the connection to the front end

 private:
  // --- The agent ---
  // Passes an event to the core and carries out the actions that result, as NodeAgent does.
  template <class Event>
  void Feed(Event event) {
    if (loop_.gone) return;
    core_.front_end().SetReaders({.front_end_has_all = ended_events_, .has_viewers = false});
    event(Now());
    AgentActions actions = core_.Take(Now());
    if (!actions.empty()) CarryOut(std::move(actions));
  }
  void CarryOut(AgentActions actions);
  void Do(agent_action::Log& action);
  void Do(agent_action::EmitEvent& action) { Emit(std::move(action.event)); }
  void Do(agent_action::EndEvents& action);
  void Do(agent_action::DetachFrontEnd&) { detached_events_ = true; }
  void Do(agent_action::SendToSupervisor& action) {
    supervisor_.Request(std::move(action.request));
  }
  void Do(agent_action::SendToRendezvous& action) { Log(std::move(action.message)); }
  void Do(agent_action::StartHeart& action);
  void Do(agent_action::FindRendezvous& action);
  void Do(agent_action::JoinRendezvous& action);
  void Do(agent_action::LeaveRendezvous&);
  void Do(agent_action::PlanWorkers& action);
  void Do(agent_action::DescribeWorker& action);
  void Do(agent_action::ReservePort& action);
  void Do(agent_action::SweepOrphans&);
  void Do(agent_action::SendVote& action);
  void Do(agent_action::WithdrawVote&) { WithdrawVote(); }
  void Do(agent_action::AnswerVote& action);
  void Do(agent_action::OpenRendezvous& action);
  void Do(agent_action::WriteResult& action);
  void Do(agent_action::Quit&) { EndAgent(); }
  // Actions without effect in the simulation.
  void Do(agent_action::EmitStatus&) {}
  void Do(agent_action::FollowRank&) {}
  void Do(agent_action::EndRankOutput&) {}
  void Do(agent_action::InspectWorker&) {}
  void Do(agent_action::StartMpiServer&) {}  // no effect, because simulated ranks use no MPI
  void Do(agent_action::AskMpiServer&) {}

  void OnSupervisorGone();
  void FindRendezvous(Clock::time_point deadline);
  void OpenRendezvous(const pb::FailoverRequest& last, std::optional<uint32_t> lost_node);
  void WithdrawVote();
  void Log(pb::AgentMessage message);  // sends to the rendezvous
  void Beat();
  void Tick();
  void EndAgent(bool killed = false);
  void Emit(pb::NodeEvent event);
  void EmitAlive();
  pb::AgentMessage MakeBeat() const;

  std::string name() const;
  template <class MakeText>
  void Note(MakeText make_text) const {
    if (!world_.trace.on()) return;
    world_.trace.Add(world_.timeline.now(),
                     name() + " (incarnation " + std::to_string(index_) + ")", make_text());
  }

  World& world_;
  const size_t index_;
  const uint32_t node_;
  Process loop_;
  Process threads_;
  Wire up_;    // messages to the front end
  Wire down_;  // messages from the front end

  Wire votes_;  // votes to other nodes
  Wire answers_;

  Supervisor supervisor_;
  int64_t renewal_sent_ = 0;  // time at which the front end sent the newest renewal that arrived

  // State of the agent.
  AgentCore core_;
  AgentActionQueue actions_;
  Rendezvous* server_ = nullptr;
  Rendezvous* target_ = nullptr;    // rendezvous to join
  Rendezvous* attended_ = nullptr;  // rendezvous at the other end of the open stream
  SessionId session_ = 0;
  uint64_t rendezvous_clock_us_ = 0;  // clock in the rendezvous' newest heartbeat
  struct Voter {
    NodeIncarnation* incarnation = nullptr;
    uint64_t number = 0;  // number of the vote among the voter's votes
  };
  NodeIncarnation* candidate_ = nullptr;  // candidate that this node votes for
  uint64_t vote_ = 0;                     // number of the vote for candidate_
  std::map<uint32_t, Voter> voters_;      // voters for this node, by node
  bool detached_events_ = false;          // whether the front end gets no more events
  bool ended_events_ = false;             // whether the front end was sent the last event
  bool ended_viewers_ = false;            // whether this node's own command was sent the last event
  Clock::time_point tick_expiry_;
  LoopWatch loop_watch_;
  uint64_t reservations_ = 0;  // number of ReservePort actions so far
  milliseconds beat_every_{0};
  uint32_t ticks_per_beat_ = 1;
  uint32_t ticks_ = 0;
};

}  // namespace dslaunch::sim
