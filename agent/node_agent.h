// A node's part of one job: joins the rendezvous, has the keeper start and stop the workers, and
// tells the front end everything. One asio loop, one thread; gRPC's threads only post to it. The
// heart has a thread of its own.
#pragma once

#include <asio/io_context.hpp>
#include <asio/steady_timer.hpp>
#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "agent/agent_log.h"
#include "agent/epoch_workers.h"
#include "agent/event_stream.h"
#include "agent/framed_socket.h"
#include "agent/heartbeat.h"
#include "agent/job_folder.h"
#include "agent/log_keeping.h"
#include "agent/port_reservation.h"
#include "agent/program.h"
#include "agent/worker_end.h"
#include "proto/agent.pb.h"
#include "proto/keeper.pb.h"
#include "rendezvous/client.h"
#include "rendezvous/server.h"

namespace dslaunch {

class NodeAgent {
 public:
  // `control_fd`: the keeper (proto/keeper.proto).
  NodeAgent(asio::io_context& loop, int control_fd);
  ~NodeAgent();

  // The Agent service (proto/agent.proto); all on the loop's thread.
  pb::PrepareReply Prepare(const pb::PrepareRequest& request);
  void Run(const pb::RunRequest& request, std::shared_ptr<EventSink> sink);
  void Stop(const pb::StopRequest& request);
  void Signal(int signal_number);
  void OnEventWritten(bool ok) { events_.OnWritten(ok); }
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
  void Join(Result<RendezvousRoute> route);
  void OnRendezvousMessage(const pb::RendezvousMessage& message);
  void OnRendezvousEnd(const std::string& why);
  void OnAssignment(const pb::RendezvousMessage& message);
  void OnHalt(uint64_t epoch, const pb::Halt& halt);
  void OnInspect(const pb::Inspect& inspect);
  Result<PortReservation> ReserveMasterPort() const;
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
  // The rendezvous has nothing more to say. `word` is empty when it never came to its last one.
  void OnClosed(const pb::Closed& word);
  void Halted();
  void TornDown();
  void Notify(std::string text);
  // On the heart's thread.
  void Beat(bool loop_lives);
  // What the next beats tell, until the loop turns again: of a loop that stands still the ranks
  // must not seem to do so too.
  void PrepareBeat();
  void Tick();
  void CheckSilence(bool tick_was_late);
  // The last event, once nothing more can happen here.
  void EndIfAllIsSaid();
  void QuitIfIdle();
  void SendToRendezvous(pb::AgentMessage message);
  pb::AgentMessage WithSender(pb::AgentMessage message) const;
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

  pb::PrepareRequest prepare_;
  bool prepared_ = false;
  ResolvedProgram program_;
  Environment environment_;
  std::optional<JobFolder> folder_;
  std::optional<LogKeeping> log_keeping_;
  AgentLog log_;
  PortReservation master_port_;
  std::unique_ptr<RendezvousServer> server_;

  pb::RunRequest run_;
  std::unique_ptr<RendezvousClient> client_;
  std::string rendezvous_address_;
  Clock::time_point rendezvous_heard_;

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
  EventStream events_;

  std::atomic<uint64_t> rtt_us_ = 0;  // to the rendezvous and back; 0: unknown
  std::mutex beat_mutex_;             // guards what follows, and client_ against the heart
  pb::AgentMessage next_beat_;        // as the loop knew it when it turned last
  std::unique_ptr<Heartbeat> heart_;  // last: its thread uses all above
};

}  // namespace dslaunch
