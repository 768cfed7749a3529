// A node's part of one job: joins the rendezvous, has the keeper start and stop the workers, and
// tells the front end everything. One asio loop, one thread; gRPC's threads only post to it.
#pragma once

#include <asio/io_context.hpp>
#include <asio/steady_timer.hpp>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "agent/agent_log.h"
#include "agent/event_stream.h"
#include "agent/framed_socket.h"
#include "agent/job_folder.h"
#include "agent/port_reservation.h"
#include "agent/program.h"
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
  struct Worker {
    uint32_t rank = 0;
    int pid = 0;
    bool ended = false;
    std::string folder;  // of its log files
  };

  Result<pb::NodeFacts> TryPrepare(const pb::PrepareRequest& request);
  void Join(Result<RendezvousRoute> route);
  void OnRendezvousMessage(const pb::RendezvousMessage& message);
  void OnRendezvousEnd(const std::string& why);
  void StartWorkers(const pb::RendezvousMessage& message);
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
  void OnClosed(bool complete);
  void Tick();
  void CheckSilence(bool tick_was_late);
  // The last event, once nothing more can happen here.
  void EndIfAllIsSaid();
  void QuitIfIdle();
  void SendToRendezvous(pb::AgentMessage message);
  void SendToKeeper(const pb::KeeperRequest& request);
  const std::string& node_name() const {
    return prepare_.nodes(static_cast<int>(prepare_.node_index())).name();
  }

  asio::io_context& loop_;
  asio::steady_timer tick_timer_;
  FramedSocket keeper_;
  bool keeper_gone_ = false;

  pb::PrepareRequest prepare_;
  bool prepared_ = false;
  ResolvedProgram program_;
  Environment environment_;
  std::optional<JobFolder> folder_;
  AgentLog log_;
  PortReservation master_port_;
  std::unique_ptr<RendezvousServer> server_;

  pb::RunRequest run_;
  std::unique_ptr<RendezvousClient> client_;
  std::string rendezvous_address_;
  Clock::time_point rendezvous_heard_;
  uint64_t epoch_ = 0;

  std::vector<Worker> workers_;  // by local_rank
  std::string workers_cgroup_;   // empty: they have none
  size_t spawned_ = 0;
  size_t ended_well_ = 0;

  bool stopping_ = false;
  bool reaped_ = false;
  std::vector<pb::LeftProcess> left_;
  bool closed_ = false;  // the rendezvous has nothing more to say
  bool teardown_complete_ = false;
  bool front_end_gone_ = false;
  std::optional<Clock::time_point> quit_at_;

  std::optional<Clock::time_point> stream_over_at_;
  EventStream events_;
};

}  // namespace dslaunch
