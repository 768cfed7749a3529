// Runs a node's part of one job by doing the I/O of AgentCore. Passes the front end's calls, the
// supervisor's messages and the timer to the core. Carries out the core's actions, or passes them
// to the responsible object. Uses one asio loop on one thread, to which gRPC's threads post.
// Heartbeats have a thread of their own.
#pragma once

#include <asio/io_context.hpp>
#include <asio/steady_timer.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "agent/core/agent_action_queue.h"
#include "agent/core/agent_core.h"
#include "agent/host/pid_file.h"
#include "agent/node/attach_socket.h"
#include "agent/node/heartbeat.h"
#include "agent/node/node_output.h"
#include "agent/node/node_ranks.h"
#include "agent/node/node_rendezvous.h"
#include "agent/node/supervisor_link.h"
#include "agent/samples/node_sampler.h"
#include "base/error.h"
#include "proto/agent.pb.h"

namespace dslaunch {

class NodeAgent {
 public:
  // `control_fd` is the socket to the supervisor (proto/supervisor.proto). `sockets_fd` is the
  // socket through which sockets for workers are passed to the supervisor. `pmix_server` is the
  // content of the program dslaunch-pmix; empty if there is none. `serve` receives further
  // connections for the Agent service.
  NodeAgent(asio::io_context& loop, int control_fd, int sockets_fd, std::string_view pmix_server,
            std::function<void(UniqueFd)> serve);

  // Implement the calls of the Agent service (proto/agent.proto). All run on the loop's thread,
  // except Renew().
  bool Own(const pb::OwnPart& part) { return core().job().OnOwn(part); }
  pb::PrepareReply Prepare(const pb::PrepareRequest& request);
  void Run(const pb::RunRequest& request, std::shared_ptr<EventSink> sink);
  pb::RenewReply Renew(const pb::RenewRequest& request);  // thread-safe
  pb::FailoverReply Failover(const pb::FailoverRequest& request);
  void Stop(const pb::StopRequest& request);
  void Signal(int signal_number);
  pb::InputReply Input(const pb::InputRequest& request) { return ranks_.Input(request); }
  // Detaches the job from its front end. Returns the path of the socket at which Attach is served.
  // Fails if the job was not prepared to be detached.
  Result<std::string> Detach();
  void Attach(const pb::AttachRequest& request, std::shared_ptr<EventSink> sink);
  pb::JobStatus Status();
  SupervisorLink& supervisor() { return supervisor_; }
  EventHub& events() { return output_.events(); }
  // Handles a viewer that has read its last event or has disconnected.
  void OnViewerOver(const EventSink* sink);
  // Handles the end of the Run stream, because all events were sent or because the stream broke.
  void OnStreamOver();

 private:
  AgentCore& core() { return output_.core(); }
  void CarryOut(AgentActions actions);
  void Do(agent_action::JoinRendezvous& action);
  void Do(agent_action::StartHeart& action);
  void Do(agent_action::SweepOrphans& action);
  void Do(agent_action::WriteResult& action);
  void Do(agent_action::Quit&);

  Result<pb::PreparedNode> TryPrepare(const pb::PrepareRequest& request);
  Result<void> OpenAttachSocket();
  Result<void> TryFailover(const pb::FailoverRequest& request);
  // Sends the heartbeats that are due; called on the heartbeat thread.
  void Beat(bool loop_lives, bool tells_rendezvous);
  void Tick();

  asio::io_context& loop_;
  asio::steady_timer tick_timer_;
  NodeOutput output_;
  AgentActionQueue actions_;
  SupervisorLink supervisor_;
  NodeSampler sampler_;
  NodeRanks ranks_;
  NodeRendezvous rendezvous_;
  std::optional<PidFile> pid_file_;
  std::function<void(UniqueFd)> serve_;
  std::unique_ptr<AttachSocket> attach_socket_;
  std::chrono::system_clock::time_point started_at_ = std::chrono::system_clock::now();
  std::optional<std::chrono::system_clock::time_point> ended_at_;
  // Declared last, because the heartbeat thread uses the other members.
  std::unique_ptr<Heartbeat> heart_;
};

}  // namespace dslaunch
