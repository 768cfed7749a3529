// Implements the rendezvous without a network: its responses to each message, disconnection and
// tick. Uses no clock, threads or I/O; the gRPC server, tests and simulators drive it.
//
//   joining -> starting -> running -> stopping -> completed   without failures, or without restarts
//                 ^          |
//              waiting <- draining                             if the policy allows another attempt
//
// Every end of an attempt goes through EndAttempt, which calls DecideRestart. DecideQuorum selects
// the nodes that get ranks in the next attempt. Only Form assigns ranks, once per attempt.
// Participants without ranks are spares: they drain and tear down with the others, but nothing else
// waits for them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "proto/rendezvous.pb.h"
#include "rendezvous/first_cause.h"
#include "rendezvous/hang.h"
#include "rendezvous/majority.h"
#include "rendezvous/quorum.h"
#include "rendezvous/restart_policy.h"
#include "rendezvous/roster.h"
#include "rendezvous/silence.h"
#include "rendezvous/standstill_check.h"

namespace dslaunch {

struct CoordinatorOptions {
  std::string job_id;
  std::vector<pb::Node> nodes;
  pb::Timeouts timeouts;
  bool may_share_machine = false;  // true to accept nodes with equal identities
  pb::Policy policy;
  // Node whose agent runs the rendezvous and gets the notices for the user.
  uint32_t rendezvous_node = 0;
  std::vector<uint32_t> absent_nodes;  // nodes that could not be reached at the start
  milliseconds age{0};                 // age of the job, which counts towards its time limit
  // After a failover: the newest attempt of the lost rendezvous, the number of restarts used, and
  // the cause of that attempt's end.
  uint64_t attempt = 0;
  uint32_t restarts = 0;
  pb::Cause attempt_ended_by;
  // Nodes that can form a majority in a job without a front end. `majority` of them must receive
  // the heartbeats of this rendezvous before another attempt begins (rendezvous/majority.h). Empty
  // if no majority is needed.
  std::vector<uint32_t> voters;
  size_t majority = 0;
};

class Coordinator {
 public:
  // Creates a rendezvous that waits for nodes. The join timeout starts at `now`.
  Coordinator(CoordinatorOptions options, Clock::time_point now);

  // Sets the current time of the boot clock, which measures leases. Call this before each event if
  // the options name voters; otherwise it does nothing.
  void SetBootTime(BootClock::time_point now) {
    if (majority_) majority_->SetTime(now);
  }

  // Handles a message that arrived in `session`. Returns the messages to send, in order.
  std::vector<Outgoing> OnMessage(SessionId session, const pb::AgentMessage& message,
                                  Clock::time_point now);

  // Handles the end of a session. Returns the messages to send, in order.
  std::vector<Outgoing> OnDisconnect(SessionId session, Clock::time_point now) {
    return Disconnect(session, "its agent disconnected", now);
  }

  // Disconnects the agent of `session` because it sent an invalid message. `what` describes the
  // message and completes "its agent sent ...". Returns the messages to send.
  std::vector<Outgoing> OnBrokenRules(SessionId session, const std::string& what,
                                      Clock::time_point now) {
    return Disconnect(session, "its agent sent " + what, now);
  }

  // Checks all timeouts and returns the messages to send, in order. Call this at least every half
  // heartbeat.
  std::vector<Outgoing> OnTick(Clock::time_point now);

  using Phase = Barrier::Phase;
  Phase phase() const { return barrier_.phase(); }
  // Returns the number of the newest attempt with ranks; 0 before the first attempt.
  uint64_t attempt() const { return roster_.attempt(); }

 private:
  std::vector<Outgoing> Disconnect(SessionId session, const std::string& why,
                                   Clock::time_point now);

  void Join(SessionId session, const pb::AgentMessage& message, Clock::time_point now);
  void OnLateJoin(uint32_t node_index, Clock::time_point now);
  void Handle(Participant& participant, const pb::AgentMessage& message, Clock::time_point now);
  void OnHeartbeat(const Participant& participant, const pb::AgentMessage& message,
                   Clock::time_point now);
  void OnDrained(Participant& participant, const pb::Drained& drained, Clock::time_point now);
  void OnWorkerFailed(Participant& participant, const pb::WorkerFailed& failed,
                      Clock::time_point now);
  void OnStopJob(Participant& participant, const pb::Cause& cause, Clock::time_point now);
  void OnFrontEndConnection(Participant& participant, bool is_broken);

  void TryToForm(Clock::time_point now);
  void Form(QuorumDecision decision, Clock::time_point now);
  void AdvanceIfAllReady(Clock::time_point now);
  // Ends the attempt because of the reported failures, and decides whether another attempt follows.
  void EndAttempt(Clock::time_point now);
  // Ends the attempt because a node joins or leaves. Such an end does not use up a restart.
  void EndAttemptForNode(const std::string& reason, Clock::time_point now);
  void Drain(const pb::Cause& cause, const std::string& reason, milliseconds delay,
             Clock::time_point now);
  void WaitIfAllDrained(Clock::time_point now);
  void Stop(const pb::Cause& cause, Clock::time_point now);
  void CompleteIfTornDown(Clock::time_point now);

  // Tells Lose() whether to refuse further messages of the lost nodes' sessions, which may still be
  // open.
  enum class Fence { kNo, kYes };
  // Declares nodes lost with one common cause, which names the first node. Ends the attempt once
  // for all of them.
  void Lose(std::vector<Participant*> lost, const std::string& why, Fence fence,
            Clock::time_point now);
  void OnLoss(const std::vector<Participant*>& lost, const std::string& why, Clock::time_point now);
  void CheckBarrierTimes(Clock::time_point now);
  // Notifies the user of stragglers and hangs, and applies the policy for hangs. Pass false for
  // `steps_count` if this process did not read reports for some time; missing steps then do not
  // count as a hang.
  void CheckProgress(bool steps_count, Clock::time_point now);

  const CoordinatorOptions options_;
  QuorumOptions quorum_options_;
  Roster roster_;
  Barrier barrier_;
  // Deadline of the phase; used in kStarting, kDraining and kStopping.
  Clock::time_point barrier_deadline_;
  // For kJoining: number of nodes for which DecideQuorum must still wait.
  size_t still_expected_ = 0;
  std::vector<uint32_t> members_;  // indexes of the nodes that have ranks in the attempt
  HangWatch hang_watch_;
  uint64_t exchange_us_ = 0;  // HangWatch::ExchangeTime() in microseconds at the last tick
  StandstillCheck standstill_;
  FailureLog failures_;
  // Losses that did not end the attempt, in order of arrival.
  std::vector<FailureReport> tolerated_;
  // Time at which the attempt ends if only victims of other failures have failed; nullopt if none
  // has failed.
  std::optional<Clock::time_point> settle_by_;
  std::vector<EndedAttempt> ended_;  // results of the attempts that have ended, oldest first
  std::optional<pb::Cause> cause_;   // cause of the job's end; set when stopping, NONE for success
  bool mpi_has_begun_ = false;       // whether a rank uses MPI in this attempt
  std::vector<std::string> reconnected_;  // nodes whose front end reconnected since the last tick
  Clock::time_point last_tick_;
  std::optional<Clock::time_point> time_limit_;  // nullopt if the job has no time limit
  milliseconds delay_{0};                        // pause before the next attempt; used in kWaiting
  Clock::time_point not_before_;      // earliest start of the next attempt; used in kWaiting
  std::optional<Majority> majority_;  // tracks the majority; nullopt if none is needed
  SilentNodes silent_nodes_{options_.timeouts, options_.policy, majority_, roster_};
};

}  // namespace dslaunch
