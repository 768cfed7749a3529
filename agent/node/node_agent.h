// A node's part of one job: joins the rendezvous, has the keeper start and stop the workers, and
// tells the front end everything. One asio loop, one thread; gRPC's threads only post to it. The
// heart has a thread of its own.
#pragma once

#include <asio/io_context.hpp>
#include <asio/steady_timer.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "agent/host/pid_file.h"
#include "agent/host/program.h"
#include "agent/logs/agent_log.h"
#include "agent/logs/event_hub.h"
#include "agent/logs/filtered_log.h"
#include "agent/logs/job_folder.h"
#include "agent/logs/log_keeping.h"
#include "agent/node/attach_socket.h"
#include "agent/node/epoch_workers.h"
#include "agent/node/heartbeat.h"
#include "agent/node/rendezvous_link.h"
#include "agent/node/worker_end.h"
#include "agent/node/worker_specs.h"
#include "proto/agent.pb.h"
#include "proto/contract/port_reservation.h"
#include "proto/keeper.pb.h"
#include "proto/wire/framed_socket.h"
#include "proto/wire/lease.h"
#include "rendezvous/server.h"

namespace dslaunch {

class NodeAgent {
 public:
  // `control_fd`: the keeper (proto/keeper.proto). `serve` takes a further connection for the Agent
  // service.
  NodeAgent(asio::io_context& loop, int control_fd, std::function<void(UniqueFd)> serve);
  ~NodeAgent();

  // The Agent service (proto/agent.proto); all but Renew on the loop's thread.
  bool Own(const pb::OwnPart& part);  // false: it is too late
  pb::PrepareReply Prepare(const pb::PrepareRequest& request);
  void Run(const pb::RunRequest& request, std::shared_ptr<EventSink> sink);
  pb::RenewReply Renew(const pb::RenewRequest& request);  // thread-safe
  pb::MoveReply Move(const pb::MoveRequest& request);
  void Stop(const pb::StopRequest& request);
  void Signal(int signal_number);
  // The path of the socket where Attach is served; an error when the job was not prepared for it.
  Result<std::string> Detach();
  void Attach(const pb::AttachRequest& request, std::shared_ptr<EventSink> sink);
  pb::JobStatus Status() const;
  void OnEventWritten(bool ok) { events_.OnWritten(ok); }
  void OnViewerWritten(const EventSink* sink, bool ok) { events_.OnViewerWritten(sink, ok); }
  void OnViewerOver(const EventSink* sink);
  // The Run stream is over, because all was said or because it broke. Then the keeper tells that
  // the front end is gone, or is gone itself; when it tells nothing in time, the front end is
  // silent and counts as gone.
  void OnStreamOver();

 private:
  enum class Phase {
    kIdle,      // no ranks: before the first assignment, between two epochs, or a spare
    kWorking,   // an epoch's ranks run, or have ended well
    kHalting,   // the keeper empties the node for the next epoch
    kStopping,  // the keeper empties the node for good
    kEmpty,     // it has
  };

  Result<pb::NodeFacts> TryPrepare(const pb::PrepareRequest& request);
  // What `request` comes to where the front end has no say in what runs here.
  Result<pb::PrepareRequest> WithOwnPart(const pb::PrepareRequest& request) const;
  // Environment and program of the ranks.
  Result<void> PrepareProgram();
  Result<void> SavePid();
  // kUnavailable: this node has not the one that was chosen.
  Result<void> CheckNetworkInterface() const;
  // This node decides from now on; `last` says what was before.
  Result<void> OpenRendezvous(const pb::MoveRequest& last);
  void GoToRendezvous();
  void Join(Result<RendezvousRoute> route);
  void OnRendezvousMessage(const pb::RendezvousMessage& message);
  void OnRendezvousEnd(const std::string& why);
  bool MayMove() const;
  void AwaitMove(const pb::Cause& cause);
  Result<void> TryMove(const pb::MoveRequest& request);
  void LeaveRendezvous();
  void OnAssignment(const pb::RendezvousMessage& message);
  Result<WorkerPlan> PlanWorkers(const pb::Assignment& assignment);
  // By slot; empty: none is bound. `first_rank` and `world_size` count where all nodes are one
  // machine.
  Result<std::vector<RankBinding>> BindRanks(uint32_t first_rank, uint32_t world_size,
                                             const std::vector<std::string>& devices) const;
  void OnHalt(uint64_t epoch, const pb::Halt& halt);
  void OnInspect(const pb::Inspect& inspect);
  // Releases the port held so far.
  Result<void> ReserveMasterPort();
  void OnKeeperMessage(std::string_view bytes);
  void OnFrontEndGone();
  void OnKeeperGone();
  void OnWorkersCgroup(const pb::WorkersCgroup& cgroup);
  void OnSpawned(const pb::WorkerSpawned& spawned);
  void OnSpawnFailed(const pb::SpawnFailed& failed);
  void OnWorkerExited(const pb::WorkerExited& exited);
  void OnWorkerStopped(const pb::WorkerStopped& stopped);
  void OnStatus(const pb::StatusBytes& status);
  void OnAllReaped(const pb::AllReaped& reaped);
  // Ends this node's part; the first call's cause counts, an empty one is success.
  void BeginStop(const pb::Cause& cause, bool kill_now = false);
  // The same, and the other nodes hear of it.
  void StopJob(const pb::Cause& cause, bool kill_now = false);
  void TellOfStop(const pb::Cause& cause);
  // The rendezvous has nothing more to say. `word` is empty when it never came to its last one.
  void OnClosed(const pb::Closed& word);
  void Halted();
  void TornDown();
  void Notify(std::string text);
  // On the heart's thread.
  void Beat(bool loop_lives);
  void Tick();
  void CheckSilence(bool tick_was_late);
  void CheckLease();
  void SetLease(milliseconds length);
  // The last event, once nothing more can happen here.
  void EndIfAllIsSaid();
  void QuitIfIdle();
  // All that others still need of this agent is done.
  bool MayQuit() const;
  // Nobody was told how the job ended: it is put on record.
  void WriteResult();
  void SendToRendezvous(pb::AgentMessage message);
  void SendToKeeper(const pb::KeeperRequest& request);
  bool stopping() const { return phase_ >= Phase::kStopping; }
  const pb::Node& NodeAt(uint32_t index) const { return prepare_.nodes(static_cast<int>(index)); }
  const pb::Node& own_node() const { return NodeAt(prepare_.node_index()); }
  const std::string& node_name() const { return own_node().name(); }
  // "rank 3 (node2, pid 123)", for messages.
  std::string Describe(const EpochWorker& worker) const;

  asio::io_context& loop_;
  asio::steady_timer tick_timer_;
  FramedSocket keeper_;
  bool keeper_gone_ = false;

  std::optional<pb::OwnPart> own_;
  pb::PrepareRequest prepare_;
  bool prepared_ = false;
  ResolvedProgram program_;
  Environment environment_;
  std::optional<JobFolder> folder_;
  std::optional<LogKeeping> log_keeping_;
  AgentLog log_;
  PortReservation master_port_;
  std::optional<PidFile> pid_file_;

  pb::RunRequest run_;
  std::unique_ptr<RendezvousLink> link_;
  std::optional<Clock::time_point> move_by_;  // the rendezvous is lost, and another is awaited
  pb::Cause lost_by_;                         // why
  bool join_when_empty_ = false;

  Phase phase_ = Phase::kIdle;
  uint64_t epoch_ = 0;  // the newest that this node was part of, as rank or spare; 0: none yet
  EpochWorkers workers_;
  WorkerLife workers_life_;     // what all of them have in common
  std::string workers_cgroup_;  // empty: they have none
  pb::NodeDone done_;           // what is known of it so far
  bool closed_ = false;         // the rendezvous has nothing more to say
  bool front_end_gone_ = false;
  std::optional<Clock::time_point> quit_at_;

  std::optional<Clock::time_point> stream_over_at_;
  Lease lease_;
  EventHub events_;
  std::optional<FilteredLog> filtered_log_;

  std::function<void(UniqueFd)> serve_;
  std::unique_ptr<AttachSocket> attach_socket_;
  bool detached_ = false;
  Clock::time_point detached_at_;
  bool result_written_ = false;
  pb::Cause outcome_;  // as it was heard first
  std::chrono::system_clock::time_point started_at_ = std::chrono::system_clock::now();
  std::optional<std::chrono::system_clock::time_point> ended_at_;
  std::optional<Clock::time_point> closed_at_;

  std::mutex server_mutex_;  // guards server_ against the heart
  std::shared_ptr<RendezvousServer> server_;
  std::unique_ptr<Heartbeat> heart_;  // last: its thread uses all above
};

}  // namespace dslaunch
