// A node's agent without its processes, sockets and files: what it does about each call of the
// front end, message of the rendezvous or the supervisor, and tick. Pure: no clock, no threads, no
// I/O; NodeAgent, tests and simulators drive it.
//
//   idle -> working -> draining -> idle ...       when another attempt follows
//     \________|__________|
//              v
//           stopping -> torn down                when the job ends, or this node's part of it
//
// Whatever ends this node's part goes through BeginStop, whose first cause is kept. A node is empty
// only when its supervisor has reported so, or has ended itself and the processes it left have been
// swept.
//
// A detached job of three or more nodes that may restart needs a majority of them: its nodes run
// ranks under leases that the rendezvous gives while a majority hears it (rendezvous/majority.h),
// and elect another rendezvous when it is lost (election_core.h).
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "agent/node/agent_action.h"
#include "agent/node/attempt_workers.h"
#include "agent/node/election_core.h"
#include "agent/node/worker_end.h"
#include "base/deadline.h"
#include "base/error.h"
#include "proto/agent.pb.h"
#include "proto/pmix.pb.h"
#include "proto/rendezvous.pb.h"
#include "proto/supervisor.pb.h"
#include "proto/wire/lease.h"
#include "proto/wire/node_list.h"

namespace dslaunch {

struct AgentCoreOptions {
  // Test only: a planted bug that the simulator must find. A node reports that it has drained
  // before its supervisor has reaped the ranks.
  bool plant_early_drained = false;
  // The same: one node is taken for a majority; or a node elects another rendezvous before the
  // leases of the lost one are over.
  bool plant_minority = false;
  bool plant_no_fence = false;
};

// Every OnX takes what has happened and returns what to do, in order. One thread, but for Renew and
// Alive.
class AgentCore {
 public:
  enum class Phase {
    kIdle,      // no ranks: before the first assignment, between two attempts, or a spare
    kWorking,   // an attempt's ranks run, or have succeeded
    kDraining,  // the supervisor ends all ranks before the next attempt
    kStopping,  // the supervisor tears the node down
    kTornDown,  // torn down
  };

  // How much of the events their receivers have got.
  struct Readers {
    bool front_end_has_all = false;  // it was sent the last event
    bool has_viewers = false;        // some viewer has not got the last event yet
  };

  // The first lease, of a front end that has not prepared anything yet, begins at `now`.
  AgentCore(const AgentCoreOptions& options, BootClock::time_point now);

  // To be called before an event when it may have changed.
  void SetReaders(const Readers& readers) { readers_ = readers; }

  // --- The front end ---

  // This node's own command sends what may run here. False: the job is already prepared.
  bool OnOwn(const pb::OwnPart& part);
  // Sets prepare(), with the values of this node's own command in place of the front end's.
  // Refused: kInternal for an incomplete job or a second one, kNoPermission
  // for one that is not this node's.
  Result<void> OnPrepare(pb::PrepareRequest request);
  // All that the job needs of this machine is there; where this node decides, its rendezvous is
  // open.
  AgentActions OnPrepared();
  AgentActions OnRun(std::vector<std::string> rendezvous_endpoints, Clock::time_point now);
  AgentActions OnStop(pb::Cause cause, bool kill_now);
  AgentActions OnSignal(int signal_number);
  // The job no longer needs its front end; `socket_path` is where it can be attached to.
  AgentActions OnDetach(const std::string& socket_path, Clock::time_point now,
                        BootClock::time_point boot_now);
  // Refused: kUnavailable when this node waits for no other rendezvous.
  Result<void> CheckFailover(const pb::FailoverRequest& request) const;
  // After CheckFailover; where this node is to decide, its rendezvous is open.
  AgentActions OnFailover(const pb::FailoverRequest& request, Clock::time_point now);
  // The Run stream is over, because all was said or because it broke. Then the supervisor tells
  // that the front end is gone, or is gone itself; when it tells nothing in time, the front end is
  // silent and counts as gone.
  AgentActions OnStreamOver(Clock::time_point now);
  AgentActions OnViewerOver(Clock::time_point now);

  // The front end renews its lease. Thread-safe.
  pb::RenewReply Renew(const pb::RenewRequest& request, BootClock::time_point now);
  // What each heartbeat tells the supervisor. Thread-safe.
  pb::AgentAlive Alive(BootClock::time_point now);
  // The rendezvous has answered the heartbeat that was sent at `sent`: a majority heard it that
  // long before. Thread-safe.
  void OnMajority(BootClock::time_point sent, std::chrono::microseconds age,
                  BootClock::time_point now);

  // --- The rendezvous ---

  // Its address as this node reaches it, or why it was not found.
  AgentActions OnRendezvousFound(const Result<std::string>& address, Clock::time_point now);
  AgentActions OnRendezvousMessage(const pb::RendezvousMessage& message, Clock::time_point now,
                                   BootClock::time_point boot_now);
  // The stream is over, but not by LeaveRendezvous.
  AgentActions OnRendezvousEnd(const std::string& why, Clock::time_point now);

  // --- The election of another rendezvous; see ElectionCore ---

  AgentActions OnVote(uint32_t voter, const pb::Vote& vote, Clock::time_point now);
  void OnVoterGone(uint32_t voter);
  AgentActions OnVoteAnswer(uint32_t candidate, const pb::VoteAnswer& answer,
                            Clock::time_point now);
  AgentActions OnRendezvousOpened(const Result<std::vector<std::string>>& endpoints,
                                  Clock::time_point now);

  // --- The supervisor and this machine ---

  AgentActions OnSupervisorEvent(const pb::SupervisorEvent& event, Clock::time_point now);
  // Its end of the socket is closed.
  AgentActions OnSupervisorGone(Clock::time_point now);
  AgentActions OnWorkersPlanned(uint64_t attempt, Result<pb::SpawnWorkers> specs);
  // `round_trip_us`: of the newest heartbeat to the rendezvous; 0: none came back yet.
  AgentActions OnWorkerDescribed(const agent_action::DescribeWorker& asked, WorkerEnd end,
                                 uint64_t round_trip_us, Clock::time_point now);
  AgentActions OnPortReserved(const Result<uint32_t>& port, Clock::time_point now);
  // Another user's program listens at MASTER_PORT, where rank 0 of this node has yet to listen.
  AgentActions OnMasterPortTaken(uint32_t user);
  // There is no MPI server for the ranks that use MPI. `why`: a sentence.
  AgentActions OnMpiFailed(const std::string& why);
  // What the MPI server knows of a rank.
  AgentActions OnMpiRank(const pb::PmixRank& known, Clock::time_point now);
  // A rank of this node has called MPI_Abort. Its exit code says the rest, unless that is 0 or it
  // waits to be killed.
  AgentActions OnMpiAbort(const pb::PmixAbort& aborted);
  AgentActions OnOrphansSwept(const google::protobuf::RepeatedPtrField<pb::LeftProcess>& left,
                              Clock::time_point now);

  // --- Time ---

  // The front end has not renewed its lease for some heartbeats, so this node sends it `alive`
  // events: there is no answer to a renewal that shows that the node lives. A front end that counts
  // a node as lost renews its lease again only after an event from it.
  bool IsUnasked(BootClock::time_point now) const;
  // To be called every tick_interval(); `late` is by how much this call is later than that.
  AgentActions OnTick(Clock::time_point now, BootClock::time_point boot_now, Clock::duration late);
  milliseconds tick_interval() const;
  // The rendezvous has been silent for so long that its connection may be what fails.
  bool IsRendezvousQuiet(Clock::time_point now) const {
    return joined_ && !completed_ && !hosts_rendezvous_ &&
           now - last_seen_ >= milliseconds(prepare_.job().timeouts().dead_ms()) / 2;
  }

  // --- How things stand ---

  Phase phase() const { return phase_; }
  bool stopping() const { return phase_ >= Phase::kStopping; }
  bool prepared() const { return prepared_; }
  bool detached() const { return detached_at_.has_value(); }
  // This node hosts the rendezvous.
  bool hosts_rendezvous() const { return hosts_rendezvous_; }
  // It has lost the rendezvous, and elects another with the other nodes.
  bool is_electing() const { return is_electing_; }
  // The newest attempt that this node was part of, as rank or spare; 0: none yet.
  uint64_t attempt() const { return attempt_; }
  const AttemptWorkers& workers() const { return workers_; }
  const pb::PrepareRequest& prepare() const { return prepare_; }
  const NodeTable& nodes() const { return nodes_; }  // of prepare()
  const pb::Node& own_node() const { return own_node_; }
  const std::string& node_name() const { return own_node().name(); }
  // Ranks of this node run, or may yet be started.
  bool MayRanksRun() const;
  // Why this node's part ended: the first report.
  const pb::Cause& outcome() const { return outcome_; }

 private:
  Result<void> PutInOwnPart(pb::PrepareRequest& request, const NodeTable& nodes) const;

  // The rendezvous.
  void GoToRendezvous(Clock::time_point now);
  void JoinRendezvous(const std::string& address, Clock::time_point now);
  void LoseRendezvous(const std::string& why, Clock::time_point now);
  bool CanBeReplaced() const;
  bool MayFailOver() const { return !hosts_rendezvous_ && CanBeReplaced(); }
  void OnCutOff(const pb::Cause& cause, Clock::time_point now);
  void AwaitFailover(const pb::Cause& cause, Clock::time_point now);
  void EmitLost(pb::RendezvousLost lost);
  void MoveTo(const pb::FailoverRequest& request, Clock::time_point now);
  void LeaveRendezvous();
  void OnAssignment(const pb::RendezvousMessage& message, BootClock::time_point boot_now);
  void OnDrain(uint64_t attempt, const pb::Drain& drain);
  void OnInspect(const pb::Inspect& inspect);
  void OnCompleted(const pb::Completed& word, Clock::time_point now);

  // The majority of a detached job (agent_core_election.cc).
  void PrepareElection();
  // The job has no front end, and this node's ranks need a majority.
  bool NeedsMajority() const { return election_.has_value() && detached(); }
  bool DoesLeaseCount() const {
    return NeedsMajority() && (phase_ == Phase::kWorking || phase_ == Phase::kDraining);
  }
  void CheckMajority(Clock::time_point now, BootClock::time_point boot_now);
  void LoseMajority(Clock::time_point now);
  bool MayElect() const;
  void AwaitElection(const pb::Cause& cause, Clock::time_point now);
  void CarryOut(ElectionActions actions, Clock::time_point now);
  void FollowElection(const election_action::Follow& follow, Clock::time_point now);
  void GiveUpElection(const election_action::GiveUp& give_up, Clock::time_point now);

  // The workers.
  void OnSpawned(const pb::WorkerSpawned& spawned);
  void OnSpawnFailed(const pb::SpawnFailed& failed);
  void OnWorkerExited(const pb::WorkerExited& exited, Clock::time_point now);
  void EndWorker(pb::WorkerExited exited, Clock::time_point now);
  void OnWorkerStopped(const pb::WorkerStopped& stopped);
  void OnReportedLost(uint32_t rank);  // a rank of this node reports one of any node
  void OnEndRank(uint32_t rank);
  void KillWorker(const AttemptWorker& worker);
  void OnStatus(const pb::StatusBytes& status, Clock::time_point now);
  void OnWorkersCgroup(const pb::WorkersCgroup& cgroup);
  // "rank 3 (node2, pid 123)", for messages.
  std::string Describe(const AttemptWorker& worker) const;

  // Ranks that use MPI (agent_core_mpi.cc).
  bool AsksMpiServer(const pb::WorkerExited& exited) const;
  void BeginMpi(Clock::time_point now);
  void OnMpiBegun(Clock::time_point now);
  void EndHeldWorkers();
  void CheckMpi(Clock::time_point now);

  // The end.
  void OnAllReaped(const google::protobuf::RepeatedPtrField<pb::LeftProcess>& left,
                   Clock::time_point now);
  void Drained();
  void TornDown(Clock::time_point now);
  // Ends this node's part; the first call's cause counts, an empty one is success.
  void BeginStop(const pb::Cause& cause, bool kill_now = false);
  // The same, and notifies the other nodes.
  void StopJob(const pb::Cause& cause, bool kill_now = false);
  void NotifyStop(const pb::Cause& cause);
  void OnFrontEndConnection(bool is_broken);
  void OnStepSignal(int signal_number);
  // To the supervisor, which ends everything.
  void SendNoFrontEnd();
  void OnFrontEndGone(Clock::time_point now);
  void LeaveRendezvousToOthers();
  // The last event, once nothing more can happen here.
  void EndIfAllIsReported();
  void QuitIfIdle(Clock::time_point now);
  // All that others still need of this agent is done.
  bool MayQuit(Clock::time_point now) const;
  void WriteResult();

  // Time.
  void CheckSilence(Clock::time_point now, BootClock::time_point boot_now, bool was_late);
  void CheckLease(Clock::time_point now, BootClock::time_point boot_now);
  void SetLease(milliseconds length);

  // Actions.
  template <class Action>
  void Do(Action action) {
    out_.emplace_back(std::move(action));
  }
  // The supervisor looks at the lease also while this thread waits for a disk.
  AgentActions Take() {
    lease_counts_ = DoesLeaseCount();
    return std::exchange(out_, {});
  }
  void Log(std::string text) { Do(agent_action::Log{std::move(text)}); }
  void Emit(pb::NodeEvent event) { Do(agent_action::EmitEvent{std::move(event)}); }
  void Notify(std::string text);  // the user
  void SendToRendezvous(pb::AgentMessage message);
  void SendToSupervisor(pb::SupervisorRequest request);
  // `signal`: the first one; 0: the job's.
  void StopWorkers(bool kill_now = false, int signal = 0);
  pb::Cause OwnCause(pb::Cause::Kind kind, ExitCode code, std::string message) const;

  const AgentCoreOptions options_;
  Readers readers_;
  Lease lease_;
  Lease majority_lease_;  // of the nodes' majority
  AgentActions out_;

  std::optional<pb::OwnPart> own_;
  pb::PrepareRequest prepare_;
  NodeTable nodes_;
  pb::Node own_node_;
  bool prepared_ = false;
  std::vector<std::string> rendezvous_endpoints_;

  bool hosts_rendezvous_ = false;
  bool joined_ = false;          // a stream to the rendezvous was opened, and not left
  Clock::time_point last_seen_;  // of the rendezvous: the newest
  std::optional<Clock::time_point> failover_by_;  // the rendezvous is lost, and another is awaited
  pb::Cause lost_by_;                             // why
  bool join_when_empty_ = false;
  // This node has given the rendezvous up: for the front end, once its ranks have ended.
  std::optional<pb::RendezvousLost> given_up_;

  std::optional<ElectionCore> election_;  // none: this job needs no majority
  bool is_electing_ = false;
  uint64_t newest_attempt_ = 0;                // of the job, as far as the rendezvous has said
  uint32_t restarts_ = 0;                      // used up, as far as this node knows
  Clock::time_point lease_seen_;               // or when it joined
  std::optional<pb::RendezvousMessage> held_;  // an assignment, for which it waits for a lease
  std::atomic<bool> lease_counts_ = false;     // for the supervisor

  Phase phase_ = Phase::kIdle;
  uint64_t attempt_ = 0;
  AttemptWorkers workers_;
  // Of this attempt:
  std::map<uint32_t, int> mpi_aborts_;             // codes of ranks that are killed for it, by rank
  std::optional<Clock::time_point> mpi_begun_at_;  // none: no rank uses MPI
  bool late_for_mpi_is_reported_ = false;          // ranks that have not called MPI_Init
  std::set<uint32_t> mpi_joined_;                  // local ranks that have called MPI_Init
  std::map<uint32_t, std::string> mpi_faults_;     // what ranks that ended with 0 left out
  struct HeldWorker {
    pb::WorkerExited exited;
    Clock::time_point noticed;
  };
  std::map<uint32_t, HeldWorker> held_workers_;  // until the MPI server has answered
  std::string program_;                          // of the workers
  std::string workers_cgroup_;                   // empty: they have none
  pb::NodeDone done_;                            // what is known of it so far
  pb::Cause outcome_;
  bool completed_ = false;  // the rendezvous has nothing more to say
  std::optional<Clock::time_point> completed_at_;

  bool supervisor_gone_ = false;
  bool front_end_gone_ = false;
  bool front_end_link_is_broken_ = false;  // the connection to it; it may come back
  std::optional<Clock::time_point> stream_over_at_;
  std::optional<Clock::time_point> detached_at_;
  std::optional<Clock::time_point> quit_at_;  // whether or not the other nodes know of our end
  bool result_written_ = false;
  bool quits_ = false;
};

}  // namespace dslaunch
