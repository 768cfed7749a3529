// The rendezvous without a network: its answers to each message, disconnection and tick. Pure:
// no clock, no threads, no I/O; the gRPC server, tests and simulators drive it.
//
//   joining -> starting -> running -> stopping -> completed   when nothing fails, or nothing may
//                 ^          |
//              waiting <- draining                             when policy allows another attempt
//
// Whatever ends an attempt goes through EndAttempt, which asks DecideRestart; whoever gets ranks in
// the next one is picked by DecideQuorum. Ranks are given in Form alone, once for each attempt.
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
  bool may_share_machine = false;  // equal identities are no error
  pb::Policy policy;
  uint32_t rendezvous_node = 0;        // whose agent runs this and gets the notices for the user
  std::vector<uint32_t> absent_nodes;  // could not be reached at the start
  milliseconds age{0};                 // of the job, which its time limit counts
  // After a failover: the newest attempt of the lost rendezvous, the restarts used up, and why that
  // attempt ended.
  uint64_t attempt = 0;
  uint32_t restarts = 0;
  pb::Cause attempt_ended_by;
  // Of a job without a front end: the nodes of which `majority` have to hear this rendezvous for
  // another attempt (rendezvous/majority.h). Empty: none have to.
  std::vector<uint32_t> voters;
  size_t majority = 0;
};

// One agent's connection; chosen by the caller, never used twice.
using SessionId = uint64_t;

struct Outgoing {
  SessionId session = 0;
  pb::RendezvousMessage message;
  bool end_session = false;  // nothing follows on this session
};

class Coordinator {
 public:
  // The join time-out runs from `now`.
  Coordinator(CoordinatorOptions options, Clock::time_point now);

  // To be called before an event, where there are voters.
  void SetBootTime(BootClock::time_point now) { boot_now_ = now; }

  // Each returns what to send, in order.
  std::vector<Outgoing> OnMessage(SessionId session, const pb::AgentMessage& message,
                                  Clock::time_point now);
  std::vector<Outgoing> OnDisconnect(SessionId session, Clock::time_point now);
  // Its agent sent `what`, which no agent sends, and is disconnected.
  std::vector<Outgoing> OnBrokenRules(SessionId session, const std::string& what,
                                      Clock::time_point now);
  // Call it at least as often as half a heartbeat.
  std::vector<Outgoing> OnTick(Clock::time_point now);

  enum class Phase { kJoining, kStarting, kRunning, kDraining, kWaiting, kStopping, kCompleted };
  Phase phase() const { return phase_; }
  uint64_t attempt() const { return attempt_; }

 private:
  std::vector<Outgoing> Disconnect(SessionId session, const std::string& why,
                                   Clock::time_point now);

  struct Progress {
    RankSteps steps;
    uint64_t first_step = 0;  // heard of in this attempt
  };

  struct Participant {
    SessionId session = 0;
    bool has_joined = false;
    Clock::time_point last_seen;
    bool suspect = false;
    std::optional<uint64_t> lost_in;        // the attempt
    bool leaving = false;                   // it cannot go on, and tears down by itself
    bool front_end_link_is_broken = false;  // its connection to the front end broke
    bool has_left_processes = false;        // that could not be ended: no place for new ranks
    bool torn_down = false;
    bool saved = false;   // as TornDown said
    bool drained = true;  // false from Drain to its answer
    // Of the current attempt:
    bool in_attempt = false;  // has ranks
    bool ready = false;
    bool finished = false;
    uint32_t first_rank = 0;
    std::map<uint32_t, Progress> progress;  // by rank
    std::set<uint32_t> tolerated;           // ranks that are lost, while the others go on
    // Last, so that what every message and barrier looks at lies close together.
    Member member;

    // Once it has to drain.
    bool IsDrained() const { return leaving ? torn_down : drained; }
    bool IsUsable() const { return !lost_in && !leaving && !has_left_processes; }
  };

  // Who has joined, in hostfile order.
  JoinedRange<Participant> Joined() { return {participants_.data(), participants_.size()}; }
  JoinedRange<const Participant> Joined() const {
    return {participants_.data(), participants_.size()};
  }

  void EnterPhase(Phase phase);
  // Whether the barrier of this phase waits for it.
  bool IsAwaited(const Participant& participant) const;
  // Makes a change that may end that.
  template <class Change>
  void Update(Participant& participant, Change change);

  void Join(SessionId session, const pb::AgentMessage& message, Clock::time_point now);
  void OnLateJoin(uint32_t node_index, Clock::time_point now);
  std::string LateJoinText(bool has_room) const;
  void Handle(Participant& participant, const pb::AgentMessage& message, Clock::time_point now);
  // It is about an attempt that has ended.
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
  // The newest lease of a majority has run out, or the first, which begins when the front end
  // leaves the job.
  bool IsLeaseOver() const;
  // Where `only`, or each node, reaches the agents of the first ones.
  void SendPeers(const Participant* only = nullptr);
  void Form(QuorumDecision decision, Clock::time_point now);
  void AdvanceIfAllReady(Clock::time_point now);
  // The ranks of the attempt on nodes where not all have succeeded, without those that are lost and
  // tolerated.
  size_t CountRunning() const;
  // With what failed in it (reports_).
  void EndAttempt(Clock::time_point now);
  void Drain(const pb::Cause& cause, const std::string& reason, milliseconds delay,
             Clock::time_point now);
  void WaitIfAllDrained(Clock::time_point now);
  void Stop(const pb::Cause& cause, Clock::time_point now);
  void CompleteIfTornDown(Clock::time_point now);
  // Every rank of the attempt saved because it was asked to stop.
  bool AllSaved(const pb::Cause& cause) const;
  // The first cause among all reports; the user gets a notice when it differs from `so_far`.
  FirstCause ResolveCause(const pb::Cause& so_far);

  enum class Fence { kNo, kYes };  // whether its session may still be open
  void Lose(Participant& participant, const std::string& why, Fence fence, Clock::time_point now) {
    LoseTogether({&participant}, why, fence, now);
  }
  // One cause, of which the first is named, ends one attempt.
  void LoseTogether(std::vector<Participant*> lost, const std::string& why, Fence fence,
                    Clock::time_point now);
  void OnLoss(const std::vector<Participant*>& lost, const std::string& why, Clock::time_point now);
  void CheckSilence(Clock::duration since_last_tick, Clock::time_point now);
  // Whether the nodes that have been silent for too long are not lost yet, because this node may be
  // the one that is cut off.
  bool MayBeCutOff(const std::vector<Participant*>& silent, const std::string& why,
                   Clock::time_point now);
  bool StopUnheard(const std::vector<Participant*>& silent, Clock::time_point now);
  // Whether the nodes that were heard shortly before `now` cannot go on without the others.
  bool HearsTooFew(Clock::time_point now) const;
  // "node2 was lost: `why`; node3 too".
  pb::Cause LossOfAll(const std::vector<Participant*>& lost, const std::string& why) const;
  void CheckBarrierTimes(Clock::time_point now);
  void CheckTimeLimit(Clock::time_point now);
  void LoseNodesNotDrained(Clock::time_point now);
  void CheckProgress(Clock::time_point now);
  void OnHang(const HangDecision& decision, Clock::time_point now);
  // Asks the nodes what the ranks do that have not failed in this attempt.
  void InspectRunning();

  std::vector<Member> UsableMembers() const;
  std::vector<uint32_t> NotExpected() const;  // nodes that the job does not wait for
  std::optional<uint64_t> BestStep() const;
  pb::Cause MakeNodeCause(pb::Cause::Kind kind, uint32_t node_index, ExitCode code,
                          std::string message) const;
  pb::Cause LossOf(uint32_t node_index, const std::string& why) const;
  pb::Cause CauseReportedBy(const Participant& participant, pb::Cause cause) const;
  void Notify(const std::string& text);  // the user
  void Refuse(SessionId session, const pb::Cause& cause);
  void Send(SessionId session, pb::RendezvousMessage message, bool end_session = false);
  void Broadcast(const pb::RendezvousMessage& message);
  std::string NodeName(uint32_t node_index) const;

  const CoordinatorOptions options_;
  QuorumOptions quorum_options_;
  Phase phase_ = Phase::kJoining;
  size_t awaited_ = 0;         // participants for whom IsAwaited; a barrier must not look at each
  size_t still_expected_ = 0;  // nodes without which DecideQuorum cannot but wait: kJoining
  std::unordered_set<std::string> identities_;  // of all that have joined
  uint64_t attempt_ = 0;                        // of the ranks assigned last; 0 before the first
  std::vector<uint32_t> members_;               // nodes with ranks in it
  std::vector<EndedAttempt> ended_;             // oldest first
  // By node index; of each node the newest. What is looked at for every message is found in one
  // step, however many there are.
  std::vector<Participant> participants_;
  std::unordered_map<SessionId, uint32_t> sessions_;  // of participants that are not lost
  std::map<SessionId, pb::Cause> fenced_;  // sessions of lost ones that may still be open, and why
  std::vector<FailureReport> reports_;     // of this attempt, in order of arrival
  std::vector<FailureReport> tolerated_;   // the same of losses that end no attempt
  std::optional<Clock::time_point> settle_by_;  // only victims have failed; then the attempt ends
  bool cause_is_final_ = false;           // what fails from now on is no cause of the job's end
  std::optional<pb::Cause> cause_;        // set when stopping; kind NONE for success
  bool hang_is_reported_ = false;         // since the last step
  bool mpi_has_begun_ = false;            // in this attempt
  std::vector<std::string> reconnected_;  // nodes whose front end is back, since the last tick
  // When CutOff was sent, while most of the other nodes are silent.
  std::optional<Clock::time_point> cut_off_at_;
  Clock::time_point last_tick_;
  std::optional<Clock::time_point> time_limit_;  // none: there is no limit
  Clock::time_point barrier_deadline_;           // of kStarting, kDraining and kStopping
  milliseconds delay_{0};                        // of kWaiting
  Clock::time_point not_before_;                 // may the next attempt begin: kWaiting
  std::optional<Majority> majority_;
  std::optional<BootClock::time_point> first_ready_at_;  // all ranks of an attempt
  BootClock::time_point boot_now_;
  std::vector<Outgoing> out_;
};

}  // namespace dslaunch
