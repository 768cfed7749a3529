// A node and its rendezvous: opens it, joins it, hears it, and waits for another when it is lost.
#include <asio/post.hpp>
#include <thread>
#include <utility>

#include "agent/host/node_identity.h"
#include "agent/node/node_agent.h"
#include "agent/node/rendezvous_options.h"
#include "proto/wire/cause.h"

namespace dslaunch {
namespace {

constexpr milliseconds kMoveSlack(10'000);  // beyond what the front end waits before it moves

}  // namespace

Result<void> NodeAgent::OpenRendezvous(const pb::MoveRequest& last) {
  ListenOptions listen;
  listen.loopback_only = prepare_.local();
  listen.port = static_cast<int>(prepare_.rdzv_port());
  listen.network_interface = prepare_.network_interface();
  DSL_TRY_ASSIGN(std::unique_ptr<RendezvousServer> server,
                 RendezvousServer::Start(RendezvousOptions(prepare_, last), listen,
                                         prepare_.credentials(), [this](const std::string& line) {
                                           asio::post(loop_, [this, line] { log_.Write(line); });
                                         }));
  const std::lock_guard lock(server_mutex_);
  server_ = std::move(server);
  return {};
}

void NodeAgent::GoToRendezvous() {
  if (server_) return Join(RendezvousRoute{server_->InProcessChannel(), ""});
  const std::vector<std::string> endpoints(run_.rendezvous_endpoints().begin(),
                                           run_.rendezvous_endpoints().end());
  std::thread([this, endpoints, job_id = prepare_.job_id(),
               rendezvous_node = prepare_.rendezvous_node(), credentials = prepare_.credentials(),
               deadline = Deadline::After(milliseconds(prepare_.timeouts().join_ms()))] {
    Result<RendezvousRoute> route =
        FindRendezvous(endpoints, job_id, rendezvous_node, credentials, deadline);
    asio::post(loop_, [this, route = std::move(route)]() mutable { Join(std::move(route)); });
  }).detach();
}

void NodeAgent::Join(Result<RendezvousRoute> route) {
  if (stopping()) return;
  if (!route.ok()) {
    closed_ = true;
    return BeginStop(MakeCause(pb::Cause::TIMED_OUT, prepare_.node_index(), route.error().code,
                               node_name() + ": " + route.error().message));
  }
  log_.Write("joining the rendezvous " +
             (route->address.empty() ? "in this process" : "at " + route->address));
  pb::Join join;
  join.set_slots(own_node().slots());
  join.set_identity(NodeIdentity());
  join.set_master_port(static_cast<uint32_t>(master_port_.port));
  link_->Join(*route, std::move(join));
}

void NodeAgent::OnRendezvousMessage(const pb::RendezvousMessage& message) {
  switch (message.message_case()) {
    case pb::RendezvousMessage::kAssignment:
      OnAssignment(message);
      break;
    case pb::RendezvousMessage::kHalt:
      OnHalt(message.epoch(), message.halt());
      break;
    case pb::RendezvousMessage::kInspect:
      OnInspect(message.inspect());
      break;
    case pb::RendezvousMessage::kNotice:
      Notify(message.notice().message());
      break;
    case pb::RendezvousMessage::kOutdated:
      log_.Write("the rendezvous is at epoch " + std::to_string(message.epoch()) +
                 " and did not take '" + message.outdated().what() + "' of epoch " +
                 std::to_string(message.outdated().epoch()));
      break;
    case pb::RendezvousMessage::kAllReady: {
      pb::NodeEvent event;
      event.mutable_running()->set_epoch(message.epoch());
      events_.Emit(std::move(event));
      break;
    }
    case pb::RendezvousMessage::kStop:
      BeginStop(message.stop().cause());
      break;
    case pb::RendezvousMessage::kRefused:
      BeginStop(message.refused().cause());
      OnClosed({});
      break;
    case pb::RendezvousMessage::kClosed:
      done_.set_closed(true);
      OnClosed(message.closed());
      break;
    default:
      break;
  }
}

void NodeAgent::OnRendezvousEnd(const std::string& why) {
  if (closed_) return;
  const uint32_t host = prepare_.rendezvous_node();
  pb::Cause cause =
      MakeCause(pb::Cause::NODE_LOST, host, ExitCode::kUnavailable,
                NodeAt(host).name() + " was lost: its rendezvous broke off (" + why + ")");
  cause.set_epoch(epoch_);
  if (MayMove()) return AwaitMove(cause);
  BeginStop(cause);
  OnClosed({});
}

// --- Another rendezvous ---

// A front end is there to name another, and policy allows another epoch.
bool NodeAgent::MayMove() const {
  return prepare_.policy().max_restarts() > 0 && !server_ && !stopping() && !detached_ &&
         !front_end_gone_ && !stream_over_at_;
}

// The front end first makes sure that the lost node has ended its ranks, which takes the node as
// long as its lease if it cannot be told.
void NodeAgent::AwaitMove(const pb::Cause& cause) {
  const pb::Timeouts& timeouts = prepare_.timeouts();
  log_.Write(CauseText(cause) + "; waiting for the front end to name another");
  LeaveRendezvous();
  lost_by_ = cause;
  move_by_ = Clock::now() + kMoveSlack +
             milliseconds(timeouts.lease_ms() + 2 * timeouts.dead_ms() + timeouts.grace_ms() +
                          timeouts.teardown_ms());
  pb::NodeEvent event;
  event.mutable_rendezvous_lost()->set_epoch(epoch_);
  event.mutable_rendezvous_lost()->set_idle(phase_ == Phase::kIdle);
  *event.mutable_rendezvous_lost()->mutable_cause() = cause;
  events_.Emit(std::move(event));
  if (phase_ > Phase::kWorking) return;
  phase_ = Phase::kHalting;
  pb::KeeperRequest request;
  request.mutable_stop();
  SendToKeeper(request);
}

void NodeAgent::LeaveRendezvous() {
  std::shared_ptr<RendezvousServer> server;
  {
    const std::lock_guard lock(server_mutex_);
    server.swap(server_);
  }
  server.reset();  // first: our own leaving is not what the others should hear of
  link_->Leave();
}

pb::MoveReply NodeAgent::Move(const pb::MoveRequest& request) {
  pb::MoveReply reply;
  const Result<void> moved = TryMove(request);
  if (!moved.ok()) {
    reply.mutable_failure()->set_exit_code(ToInt(moved.error().code));
    reply.mutable_failure()->set_message(node_name() + ": " + moved.error().message);
    return reply;
  }
  pb::RendezvousOpened& opened = *reply.mutable_opened();
  if (!server_) return reply;
  for (const std::string& endpoint : server_->endpoints())
    opened.add_rendezvous_endpoints(endpoint);
  return reply;
}

Result<void> NodeAgent::TryMove(const pb::MoveRequest& request) {
  if (!move_by_ || stopping())
    return Error{ExitCode::kUnavailable, "it does not wait for another rendezvous"};
  if (request.rendezvous_node() >= static_cast<uint32_t>(prepare_.nodes_size()))
    return Error{ExitCode::kInternal, "the front end named a node that the job does not have"};
  if (request.rendezvous_node() == prepare_.node_index()) DSL_TRY(OpenRendezvous(request));
  move_by_.reset();
  prepare_.set_rendezvous_node(request.rendezvous_node());
  *run_.mutable_rendezvous_endpoints() = request.rendezvous_endpoints();
  log_.Write(NodeAt(request.rendezvous_node()).name() + " decides from now on");
  join_when_empty_ = phase_ == Phase::kHalting;
  if (!join_when_empty_) GoToRendezvous();
  return {};
}

void NodeAgent::OnClosed(const pb::Closed& word) {
  if (std::exchange(closed_, true)) return;
  closed_at_ = Clock::now();
  log_.Write(word.complete() ? "every node is empty" : "not every node said that it is empty");
  done_.set_teardown_complete(word.complete());
  *done_.mutable_cause() = word.cause();
  *done_.mutable_members() = word.members();
  *done_.mutable_victims() = word.victims();
  EndIfAllIsSaid();
  QuitIfIdle();
}

void NodeAgent::SendToRendezvous(pb::AgentMessage message) {
  if (link_ && !closed_) link_->Send(epoch_, std::move(message));
}

}  // namespace dslaunch
