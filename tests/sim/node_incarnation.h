// One start of supervisor and agent on a node, and the ranks that they run. The agent is the
// product's AgentCore; here is what carries its actions out in virtual time. The supervisor is the
// product's too (tests/sim/supervisor.h). The disk and the log files are left out.
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
  // `own`: what this node's own command decides; nullopt: it has none.
  NodeIncarnation(World& world, size_t index, uint32_t node,
                  const std::optional<pb::OwnPart>& own = std::nullopt);
  NodeIncarnation(const NodeIncarnation&) = delete;

  uint32_t node() const { return node_; }
  size_t index() const { return index_; }
  // The agent's loop; its other threads (the heart, a rendezvous' server); the supervisor.
  Process& loop() { return loop_; }
  Process& threads() { return threads_; }
  Process& supervisor() { return supervisor_.process(); }
  Clock::time_point Now() const;
  BootClock::time_point BootNow() const;
  Machine& machine() const;
  bool is_over() const { return supervisor_.gone() && loop_.gone; }
  Rendezvous* server() const { return server_; }

  // The front end's calls, on the loop.
  bool Prepare(const pb::PrepareRequest& request);  // false: the disk is full
  void Run(Rendezvous* rendezvous);
  void Stop(const pb::Cause& cause, bool kill_now);
  // False: this node does not wait for another rendezvous. `rendezvous`: the one to go to; nullptr:
  // this node opens it.
  bool Failover(const pb::FailoverRequest& request, Rendezvous* rendezvous);
  void Detach();
  // On its threads. `sent` is for the invariants: when the front end sent it.
  uint64_t Renew(std::optional<uint64_t> last_seen_us, int64_t sent);
  // End of file on the supervisor's stdin: the front end's goodbye, its abort or its death.
  void OnFrontEndEof() { supervisor_.OnFrontEndEof(); }
  Wire& up() { return up_; }      // to the front end
  Wire& down() { return down_; }  // from it

  // Events of the supervisor, the end of the connection that it carries (both on the loop), and its
  // own end.
  void OnSupervisorEvent(const pb::SupervisorEvent& event);
  void OnStreamOver();
  void OnSupervisorFinished();
  void OnSupervisorKilled();
  // Returns by when a node without contact to its front end has to end its ranks: counted from the
  // front end's last message here, or from when the machine or the agent resumed.
  int64_t LeaseEndsBy();

  // Messages of the rendezvous.
  void OnRendezvousMessage(const Rendezvous& from, SessionId session,
                           const pb::RendezvousMessage& message);
  void OnRendezvousEnd(const Rendezvous& from, SessionId session);
  // On its threads, where it arrives.
  void OnHeartbeat(const Rendezvous& from, SessionId session, const pb::Heartbeat& heartbeat);

  // A vote of another node, its connection's end, and the answer to one of this node.
  void OnVote(NodeIncarnation& voter, uint64_t number, const pb::Vote& vote);
  void OnVoterGone(const NodeIncarnation& voter, uint64_t number);
  void OnVoteAnswer(const NodeIncarnation& candidate, uint64_t number,
                    const pb::VoteAnswer& answer);

  // Faults.
  void KillAgent();
  void KillSupervisor() { supervisor_.Kill(); }
  void KillBoth();
  void LosePower();
  // The machine: peers that still send to this incarnation learn that it is gone.
  void GetPowerBack();
  void ResetRendezvous();  // its connection
  void ResetLink();        // to the front end

 private:
  // --- The agent ---
  // Tells the core what has happened and carries out what follows from it, as NodeAgent does.
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
  // Actions without effect here.
  void Do(agent_action::EmitStatus&) {}
  void Do(agent_action::FollowRank&) {}
  void Do(agent_action::EndRankOutput&) {}
  void Do(agent_action::InspectWorker&) {}
  void Do(agent_action::StartMpiServer&) {}  // its ranks use no MPI
  void Do(agent_action::AskMpiServer&) {}

  void OnSupervisorGone();
  void FindRendezvous(Clock::time_point deadline);
  void OpenRendezvous(const pb::FailoverRequest& last, std::optional<uint32_t> lost_node);
  void WithdrawVote();
  void Log(pb::AgentMessage message);  // to the rendezvous
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
  Wire up_;    // to the front end
  Wire down_;  // from it

  Wire votes_;  // to other nodes
  Wire answers_;

  Supervisor supervisor_;
  int64_t renewal_sent_ = 0;  // time of the newest renewal that arrived

  // The agent's.
  AgentCore core_;
  AgentActionQueue actions_;
  Rendezvous* server_ = nullptr;
  Rendezvous* target_ = nullptr;    // where to go
  Rendezvous* attended_ = nullptr;  // the stream's other end
  SessionId session_ = 0;
  uint64_t rendezvous_clock_us_ = 0;  // in its newest heartbeat
  struct Voter {
    NodeIncarnation* incarnation = nullptr;
    uint64_t number = 0;  // number of its vote
  };
  NodeIncarnation* candidate_ = nullptr;  // candidate that this node votes for
  uint64_t vote_ = 0;                     // its number
  std::map<uint32_t, Voter> voters_;      // voters by node
  bool detached_events_ = false;          // the front end gets no more events
  bool ended_events_ = false;             // it was sent the last event
  bool ended_viewers_ = false;            // and so was this node's own command
  Clock::time_point tick_expiry_;
  LoopWatch loop_watch_;
  uint64_t reservations_ = 0;  // number of ReservePort actions
  milliseconds beat_every_{0};
  uint32_t ticks_per_beat_ = 1;
  uint32_t ticks_ = 0;
};

}  // namespace dslaunch::sim
