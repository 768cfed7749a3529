// A node's part of one job: AgentCore's edge. Turns the front end's calls, the supervisor's
// messages, the rendezvous' messages and the timer into the core's events, and carries out its
// actions. One asio loop, one thread; gRPC's threads only post to it. Heartbeats have a thread of
// their own.
#pragma once

#include <asio/io_context.hpp>
#include <asio/steady_timer.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "agent/host/pid_file.h"
#include "agent/logs/event_hub.h"
#include "agent/logs/filtered_log.h"
#include "agent/logs/job_folder.h"
#include "agent/logs/log_keeping.h"
#include "agent/mpi/pmix_helper.h"
#include "agent/node/agent_action_queue.h"
#include "agent/node/agent_core.h"
#include "agent/node/attach_socket.h"
#include "agent/node/election_link.h"
#include "agent/node/heartbeat.h"
#include "agent/node/node_program.h"
#include "agent/node/rank_link_hub.h"
#include "agent/node/rank_stdin.h"
#include "agent/node/rendezvous_link.h"
#include "agent/node/worker_end.h"
#include "base/log/log_file.h"
#include "base/mutex.h"
#include "net/loop_poster.h"
#include "proto/agent.pb.h"
#include "proto/contract/port_reservation.h"
#include "proto/supervisor.pb.h"
#include "proto/wire/framed_socket.h"
#include "rendezvous/server.h"

namespace dslaunch {

class NodeAgent {
 public:
  // `control_fd`: the supervisor (proto/supervisor.proto). `sockets_fd`: it takes sockets for
  // workers there. `pmix_server`: dslaunch-pmix, the program itself; empty: there is none. `serve`
  // takes a further connection for the Agent service.
  NodeAgent(asio::io_context& loop, int control_fd, int sockets_fd, std::string_view pmix_server,
            std::function<void(UniqueFd)> serve);
  ~NodeAgent();

  // The Agent service (proto/agent.proto); all but Renew on the loop's thread.
  bool Own(const pb::OwnPart& part) { return core_.OnOwn(part); }  // false: it is too late
  pb::PrepareReply Prepare(const pb::PrepareRequest& request);
  void Run(const pb::RunRequest& request, std::shared_ptr<EventSink> sink);
  pb::RenewReply Renew(const pb::RenewRequest& request);  // thread-safe
  pb::FailoverReply Failover(const pb::FailoverRequest& request);
  void Stop(const pb::StopRequest& request);
  void Signal(int signal_number);
  pb::InputReply Input(const pb::InputRequest& request);
  // The path of the socket where Attach is served; an error when the job was not prepared for it.
  Result<std::string> Detach();
  void Attach(const pb::AttachRequest& request, std::shared_ptr<EventSink> sink);
  pb::JobStatus Status() const;
  void OnEventWritten(bool ok) { events_.OnWritten(ok); }
  void OnViewerWritten(const EventSink* sink, bool ok) { events_.OnViewerWritten(sink, ok); }
  void OnViewerOver(const EventSink* sink);
  // The Run stream has ended, because everything was sent or because it broke.
  void OnStreamOver();

 private:
  // Tells the core what has happened (`event`, with the time, returns its actions) and carries out
  // what follows from it.
  template <class Event>
  void Feed(Event event) {
    core_.SetReaders({.front_end_has_all = events_.ended(), .has_viewers = events_.HasViewers()});
    CarryOut(event(Clock::now()));
  }
  void CarryOut(AgentActions actions);

  void Do(agent_action::Log& action) { log_.Write(LogLevel::kInfo, action.text); }
  void Do(agent_action::EmitEvent& action) { events_.Emit(std::move(action.event)); }
  void Do(agent_action::EmitStatus& action);
  void Do(agent_action::EndEvents& action) { events_.End(action.done); }
  void Do(agent_action::DetachFrontEnd& action);
  void Do(agent_action::FollowRank& action);
  void Do(agent_action::EndRankOutput& action);
  void Do(agent_action::SendToSupervisor& action) { supervisor_.Send(action.request); }
  void Do(agent_action::SendToRendezvous& action);
  void Do(agent_action::StartHeart& action);
  void Do(agent_action::FindRendezvous& action);
  void Do(agent_action::JoinRendezvous& action);
  void Do(agent_action::LeaveRendezvous& action);
  void Do(agent_action::PlanWorkers& action);
  void Do(agent_action::DescribeWorker& action);
  void Do(agent_action::StartMpiServer& action);
  void Do(agent_action::AskMpiServer& action);
  void Do(agent_action::InspectWorker& action);
  void Do(agent_action::ReservePort& action);
  void Do(agent_action::SweepOrphans& action);
  void Do(agent_action::SendVote& action);
  void Do(agent_action::WithdrawVote& action);
  void Do(agent_action::AnswerVote& action);
  void Do(agent_action::OpenRendezvous& action);
  void Do(agent_action::WriteResult& action);
  void Do(agent_action::Quit& action);

  Result<pb::PreparedNode> TryPrepare(const pb::PrepareRequest& request);
  Result<void> SavePid();
  // This node hosts the rendezvous from now on; `last` is the state of the one before.
  Result<void> OpenRendezvous(const pb::FailoverRequest& last);
  // On a thread of its own; `then` is called on the loop's.
  void DialRendezvous(const agent_action::FindRendezvous& action,
                      std::function<void(Result<RendezvousRoute>)> then);
  Result<void> TryFailover(const pb::FailoverRequest& request);
  RankLinkPlan PlanRankLinks(const agent_action::PlanWorkers& plan) const;
  // Why ranks that speak PMIx cannot be joined here; empty: they can.
  std::string WhyNoPmix() const;
  // Opens what ranks of this attempt that use MPI look for.
  Result<void> OpenMpi(const agent_action::PlanWorkers& plan);
  void FailToPlan(uint64_t attempt, const Error& error);
  Result<PlannedWorkers> PlanRanks(const agent_action::PlanWorkers& plan);
  void AddMpi(pb::SpawnWorkers& specs) const;
  Result<void> OpenStdin(pb::WorkerSpec& rank_0);
  void OpenRankLinks();
  void OpenVotes();
  // Rank 0, which is here, may listen at MASTER_PORT, or gets the socket that does.
  Result<void> GiveMasterPort(pb::WorkerSpec& rank_0);
  // Until rank 0 listens at MASTER_PORT, or ranks turn out to have links and not to need it.
  void WatchMasterPort();
  // Releases the port held so far.
  Result<void> ReserveMasterPort();
  void OnSupervisorMessage(std::string_view bytes);
  void OnSupervisorGone();
  void Notify(std::string text);
  // On the heartbeat thread.
  void Beat(bool loop_lives, bool tells_rendezvous);
  void Tick();

  asio::io_context& loop_;
  const std::shared_ptr<LoopPoster> poster_;  // of threads that may outlive this
  asio::steady_timer tick_timer_;
  asio::steady_timer master_port_timer_;
  AgentCore core_;
  AgentActionQueue actions_;
  FramedSocket supervisor_;
  const UniqueFd sockets_;  // to the supervisor
  const std::string_view pmix_server_;

  std::optional<NodeProgram> program_;
  std::optional<JobFolder> folder_;
  std::optional<LogKeeping> log_keeping_;
  LogFile log_;
  PortReservation master_port_;
  std::unique_ptr<RankLinkHub> rank_links_;  // null: there are no connections between ranks
  std::unique_ptr<ElectionLink> votes_;      // null: there are no connections for them
  std::string rank_socket_;                  // DSLAUNCH_RANK_SOCKET of this node's ranks
  std::unique_ptr<PmixHelper> pmix_;         // of the ranks that run; null: they have none
  std::optional<PidFile> pid_file_;
  pb::RunRequest run_;
  agent_action::FindRendezvous find_;  // the last
  RendezvousRoute route_;              // that was found by it
  std::unique_ptr<RendezvousLink> link_;
  std::shared_ptr<RankStdin> stdin_;  // of rank 0, while it is here and may read
  WorkerLife workers_life_;           // what all workers have in common

  EventHub events_;
  std::optional<FilteredLog> filtered_log_;
  std::function<void(UniqueFd)> serve_;
  std::unique_ptr<AttachSocket> attach_socket_;
  std::chrono::system_clock::time_point started_at_ = std::chrono::system_clock::now();
  const Clock::time_point made_at_ = Clock::now();
  std::optional<std::chrono::system_clock::time_point> ended_at_;

  Mutex server_mutex_;
  // Written with server_mutex_ held, by the loop's thread alone, which so reads it without; the
  // heart holds it.
  std::shared_ptr<RendezvousServer> server_;
  std::unique_ptr<Heartbeat> heart_;  // last: its thread uses all above
};

}  // namespace dslaunch
