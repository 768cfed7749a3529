// The rendezvous without a network: its responses to each message, disconnection and tick. Pure: no
// clock, threads or I/O; the gRPC server, tests and simulators drive it.
//
//   joining -> starting -> running -> stopping -> completed   without failures, or without restarts
//                 ^          |
//              waiting <- draining                             if the policy allows another attempt
//
// Every end of an attempt goes through EndAttempt, which calls DecideRestart; DecideQuorum picks
// the nodes that get ranks in the next attempt. Only Form assigns ranks, once per attempt.
// Participants without ranks are spares: they drain and tear down with the others, but nothing else
// waits for them.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/deadline.h"
#include "base/exit_code.h"
#include "base/text/joined_range.h"
#include "proto/rendezvous.pb.h"
#include "rendezvous/first_cause.h"
#include "rendezvous/hang.h"
#include "rendezvous/majority.h"
#include "rendezvous/quorum.h"
#include "rendezvous/restart_policy.h"

namespace dslaunch {

struct CoordinatorOptions {
  std::string job_id;
  std::vector<pb::Node> nodes;
  pb::Timeouts timeouts;
  bool may_share_machine = false;  // equal identities are not an error
  pb::Policy policy;
  uint32_t rendezvous_node = 0;  // node whose agent runs this and gets the notices for the user
  std::vector<uint32_t> absent_nodes;  // nodes that were unreachable at the start
  milliseconds age{0};                 // age of the job, which counts towards its time limit
  // After a failover: the newest attempt of the lost rendezvous, the restarts used, and the cause
  // of that attempt's end.
  uint64_t attempt = 0;
  uint32_t restarts = 0;
  pb::Cause attempt_ended_by;
  // For a job without a front end: the nodes of which `majority` have to receive this rendezvous'
  // heartbeats before another attempt begins (rendezvous/majority.h). Empty: no majority is needed.
  std::vector<uint32_t> voters;
  size_t majority = 0;
};

// Identifies one agent's connection; chosen by the caller and never reused.
using SessionId = uint64_t;

struct Outgoing {
  SessionId session = 0;
  pb::RendezvousMessage message;
  bool end_session = false;  // the session ends after this message
};

class Coordinator {
 public:
  // The join timeout starts at `now`.
  Coordinator(CoordinatorOptions options, Clock::time_point now);

  // Sets the time for leases. Call it before each event if there are voters.
  void SetBootTime(BootClock::time_point now) { boot_now_ = now; }

  // Each returns the messages to send, in order.
  std::vector<Outgoing> OnMessage(SessionId session, const pb::AgentMessage& message,
                                  Clock::time_point now);
  std::vector<Outgoing> OnDisconnect(SessionId session, Clock::time_point now);
  // Handles an agent that sent an invalid message, described by `what`; it is disconnected.
  std::vector<Outgoing> OnBrokenRules(SessionId session, const std::string& what,
                                      Clock::time_point now);
  // Call it at least every half heartbeat.
  std::vector<Outgoing> OnTick(Clock::time_point now);

  enum class Phase { kJoining, kStarting, kRunning, kDraining, kWaiting, kStopping, kCompleted };
  Phase phase() const { return phase_; }
  uint64_t attempt() const { return attempt_; }

 private:
  std::vector<Outgoing> Disconnect(SessionId session, const std::string& why,
                                   Clock::time_point now);

  struct Progress {
    RankSteps steps;
    uint64_t first_step = 0;  // first step reported in this attempt
  };

  struct Participant {
    SessionId session = 0;
    bool has_joined = false;
    Clock::time_point last_seen;
    bool suspect = false;
    std::optional<uint64_t> lost_in;        // attempt in which the node was lost
    bool leaving = false;                   // cannot continue, and tears down by itself
    bool front_end_link_is_broken = false;  // its connection to the front end broke
    bool has_left_processes = false;  // processes of it could not be ended, so it gets no new ranks
    bool torn_down = false;
    bool saved = false;   // as reported in TornDown
    bool drained = true;  // false from Drain to its answer
    // State of the current attempt:
    bool in_attempt = false;  // has ranks
    bool ready = false;
    bool finished = false;
    uint32_t first_rank = 0;
    std::map<uint32_t, Progress> progress;  // by rank
    std::set<uint32_t> tolerated;           // ranks that are lost while the others continue
    // Last, so that the fields read for every message and barrier are close together in memory.
    Member member;

    // For use while the attempt drains.
    bool IsDrained() const { return leaving ? torn_down : drained; }
    bool IsUsable() const { return !lost_in && !leaving && !has_left_processes; }
  };

  // Returns the participants that have joined, in hostfile order.
  JoinedRange<Participant> Joined() { return {participants_.data(), participants_.size()}; }
  JoinedRange<const Participant> Joined() const {
    return {participants_.data(), participants_.size()};
  }

  void EnterPhase(Phase phase);
  // Returns whether the barrier of this phase waits for the participant.
  bool IsAwaited(const Participant& participant) const;
  // Applies a change that may end the barrier's wait for the participant.
  template <class Change>
  void Update(Participant& participant, Change change);

  void Join(SessionId session, const pb::AgentMessage& message, Clock::time_point now);
  void OnLateJoin(uint32_t node_index, Clock::time_point now);
  std::string LateJoinText(bool has_room) const;
  void Handle(Participant& participant, const pb::AgentMessage& message, Clock::time_point now);
  // Returns whether the message is about an attempt that has ended.
  bool IsOutdated(const Participant& participant, const pb::AgentMessage& message) const;
  void RefuseOutdated(SessionId session, const pb::AgentMessage& message);
  void OnHeartbeat(Participant& participant, const pb::AgentMessage& message,
                   Clock::time_point now);
  void OnDrained(Participant& participant, const pb::AgentMessage& message, Clock::time_point now);
  void OnWorkerFailed(Participant& participant, const pb::WorkerFailed& failed,
                      Clock::time_point now);
  void OnToleratedLoss(Participant& participant, const FailureReport& report,
                       Clock::time_point now);
  void OnRankLost(uint32_t rank);
  void OnMpiBegun(const Participant& sender);
  void OnStopJob(Participant& participant, const pb::Cause& cause, Clock::time_point now);
  void OnLeave(Participant& participant, const pb::Cause& cause, Clock::time_point now);
  void OnFrontEndConnection(Participant& participant, bool is_broken);
  void NotifyOfReconnected();

  void TryToForm(Clock::time_point now);
  bool HasMajority() const;
  // Returns whether the newest lease of a majority has expired, or the first one, which begins when
  // the front end detaches.
  bool IsLeaseOver() const;
  // Sends the endpoints of the first agents to `only`, or to each node.
  void SendPeers(const Participant* only = nullptr);
  void Form(QuorumDecision decision, Clock::time_point now);
  void AdvanceIfAllReady(Clock::time_point now);
  // Returns the number of ranks of the attempt on nodes where not all ranks have succeeded, without
  // lost ranks that are tolerated.
  size_t CountRunning() const;
  // Ends the attempt because of the failures in reports_.
  void EndAttempt(Clock::time_point now);
  void Drain(const pb::Cause& cause, const std::string& reason, milliseconds delay,
             Clock::time_point now);
  void WaitIfAllDrained(Clock::time_point now);
  void Stop(const pb::Cause& cause, Clock::time_point now);
  void CompleteIfTornDown(Clock::time_point now);
  // Returns whether every rank of the attempt saved because it was asked to stop.
  bool AllSaved(const pb::Cause& cause) const;
  // Returns the first cause among all reports; notifies the user if it differs from `so_far`.
  FirstCause ResolveCause(const pb::Cause& so_far);

  enum class Fence { kNo, kYes };  // whether the node's session may still be open
  void Lose(Participant& participant, const std::string& why, Fence fence, Clock::time_point now) {
    LoseTogether({&participant}, why, fence, now);
  }
  // Declares several nodes lost with one cause, which names the first, and ends the attempt once.
  void LoseTogether(std::vector<Participant*> lost, const std::string& why, Fence fence,
                    Clock::time_point now);
  void OnLoss(const std::vector<Participant*>& lost, const std::string& why, Clock::time_point now);
  void CheckSilence(Clock::duration since_last_tick, Clock::time_point now);
  // Returns whether nodes that have been silent for too long are not yet to be declared lost,
  // because this node may be the one that is cut off.
  bool MayBeCutOff(const std::vector<Participant*>& silent, const std::string& why,
                   Clock::time_point now);
  bool StopJobIfCutOff(const std::vector<Participant*>& silent, Clock::time_point now);
  // Returns whether the nodes heard from shortly before `now` are too few to continue without the
  // others.
  bool ReceivesFromTooFew(Clock::time_point now) const;
  // Returns "node2 was lost: `why`; node3 too".
  pb::Cause LossOfAll(const std::vector<Participant*>& lost, const std::string& why) const;
  void CheckBarrierTimes(Clock::time_point now);
  void CheckTimeLimit(Clock::time_point now);
  void LoseNodesNotDrained(Clock::time_point now);
  void CheckProgress(Clock::time_point now);
  void OnHang(const HangDecision& decision, Clock::time_point now);
  // Requests a report of what the ranks do that have not failed in this attempt.
  void InspectRunning();

  std::vector<Member> UsableMembers() const;
  std::vector<uint32_t> NotExpected() const;  // nodes that the job does not wait for
  std::optional<uint64_t> BestStep() const;
  pb::Cause MakeNodeCause(pb::Cause::Kind kind, uint32_t node_index, ExitCode code,
                          std::string message) const;
  pb::Cause LossOf(uint32_t node_index, const std::string& why) const;
  pb::Cause CauseReportedBy(const Participant& participant, pb::Cause cause) const;
  void Notify(const std::string& text);  // sends a notice to the user
  void Refuse(SessionId session, const pb::Cause& cause);
  void Send(SessionId session, pb::RendezvousMessage message, bool end_session = false);
  void Broadcast(const pb::RendezvousMessage& message);
  std::string NodeName(uint32_t node_index) const;

  const CoordinatorOptions options_;
  QuorumOptions quorum_options_;
  Phase phase_ = Phase::kJoining;
  // Number of participants for which IsAwaited() is true, so a barrier need not check each.
  size_t awaited_ = 0;
  size_t still_expected_ = 0;  // kJoining: nodes without which DecideQuorum can only wait
  std::unordered_set<std::string> identities_;  // identities of all nodes that have joined
  uint64_t attempt_ = 0;             // attempt of the latest assignment; 0 before the first
  std::vector<uint32_t> members_;    // nodes with ranks in attempt_
  std::vector<EndedAttempt> ended_;  // oldest first
  // The latest participant of each node, by node index. Lookups for each message take constant
  // time, however many nodes there are.
  std::vector<Participant> participants_;
  std::unordered_map<SessionId, uint32_t> sessions_;  // sessions of participants that are not lost
  // Open sessions of lost participants, and why they were lost.
  std::map<SessionId, pb::Cause> fenced_;
  std::vector<FailureReport> reports_;    // failures in this attempt, in order of arrival
  std::vector<FailureReport> tolerated_;  // losses that end no attempt, in order of arrival
  std::optional<Clock::time_point>
      settle_by_;                // set if only victims have failed; the attempt ends at this time
  bool cause_is_final_ = false;  // later failures do not change the job's cause
  std::optional<pb::Cause> cause_;        // set when stopping; NONE for success
  bool hang_is_reported_ = false;         // true since the last step
  bool mpi_has_begun_ = false;            // true if a rank uses MPI in this attempt
  std::vector<std::string> reconnected_;  // nodes whose front end reconnected since the last tick
  // When CutOff was sent; set while most of the other nodes are silent.
  std::optional<Clock::time_point> cut_off_at_;
  Clock::time_point last_tick_;
  std::optional<Clock::time_point> time_limit_;  // nullopt: no limit
  Clock::time_point barrier_deadline_;           // used in kStarting, kDraining and kStopping
  milliseconds delay_{0};                        // used in kWaiting
  Clock::time_point not_before_;  // earliest start of the next attempt; used in kWaiting
  std::optional<Majority> majority_;
  // When all ranks of an attempt were first ready.
  std::optional<BootClock::time_point> first_ready_at_;
  BootClock::time_point boot_now_;
  std::vector<Outgoing> out_;
};

}  // namespace dslaunch
