#include "rendezvous/server.h"

#include <deque>
#include <utility>

#include "base/mutex.h"
#include "net/acceptor.h"
#include "net/addresses.h"
#include "proto/rendezvous.grpc.pb.h"
#include "proto/wire/channel.h"
#include "rendezvous/agent_gate.h"
#include "rendezvous/join_addresses.h"

namespace dslaunch {
namespace {

// An agent with this many unread messages is disconnected.
constexpr size_t kMaxQueuedMessages = 1000;

// The largest is a heartbeat with the progress of a node's ranks, of which each takes some 50
// bytes.
constexpr int kMaxAgentMessageBytes = 256 << 10;

// gRPC's names of the other end: of this process, and of a descriptor that it serves.
constexpr char kThisProcess[] = "unknown";
std::string PeerOfFd(int fd) { return "fd:" + std::to_string(fd); }

constexpr uint32_t kNoNode = UINT32_MAX;

// Of one connection; an agent needs one.
constexpr int kMaxStreams = 8;

// What the agent of a node may say.
PeerLimits LimitsOf(const std::vector<pb::Node>& nodes, uint32_t node_index) {
  PeerLimits limits;
  limits.nodes = static_cast<uint32_t>(nodes.size());
  limits.ranks = 0;
  for (const pb::Node& node : nodes) limits.ranks += node.slots();
  limits.slots = node_index < nodes.size() ? nodes[node_index].slots() : 0;
  return limits;
}

}  // namespace

class RendezvousServer::Service final : public pb::Rendezvous::CallbackService {
 public:
  Service(CoordinatorOptions options, std::string advertised_address, Log log,
          Clock::time_point now)
      : log_(std::move(log)),
        advertised_address_(std::move(advertised_address)),
        nodes_(options.nodes),
        node_behind_{{kThisProcess, AcceptedNode{.index = options.rendezvous_node}}},
        coordinator_(std::move(options), now) {}

  grpc::ServerBidiReactor<pb::AgentMessage, pb::RendezvousMessage>* Attend(
      grpc::CallbackServerContext*) override;

  // The node whose agent uses a descriptor that will be served.
  void SetNodeBehind(int fd, const AcceptedNode& node) {
    const MutexLock lock(mutex_);
    node_behind_[PeerOfFd(fd)] = node;
  }

  void Tick() {
    const MutexLock lock(mutex_);
    Deliver(coordinator_.OnTick(Clock::now()));
  }

  // Sends nothing from now on.
  void FallSilent() {
    const MutexLock lock(mutex_);
    silent_ = true;
  }

 private:
  class Session;

  void Deliver(std::vector<Outgoing> messages) DSL_REQUIRES(mutex_);

  const Log log_;
  const std::string advertised_address_;
  const std::vector<pb::Node> nodes_;
  Mutex mutex_;
  std::map<std::string, AcceptedNode> node_behind_ DSL_GUARDED_BY(mutex_);  // by gRPC's name
  Coordinator coordinator_ DSL_GUARDED_BY(mutex_);
  bool silent_ DSL_GUARDED_BY(mutex_) = false;
  SessionId next_session_ DSL_GUARDED_BY(mutex_) = 1;
  std::map<SessionId, Session*> sessions_ DSL_GUARDED_BY(mutex_);
};

// One agent's stream. gRPC owns its life: OnDone deletes it. All state is guarded by the service's
// mutex.
class RendezvousServer::Service::Session final
    : public grpc::ServerBidiReactor<pb::AgentMessage, pb::RendezvousMessage> {
 public:
  Session(Service* service, SessionId id, AcceptedNode node)
      : service_(service),
        id_(id),
        node_(std::move(node)),
        gate_(LimitsOf(service->nodes_, node_.index)) {
    StartRead(&incoming_);
  }

  // By the service, with its mutex held.
  void Queue(pb::RendezvousMessage message, bool end) {
    service_->mutex_.AssertHeld();
    if (finished_) return;
    if (queue_.size() >= kMaxQueuedMessages)
      return End(grpc::Status(grpc::RESOURCE_EXHAUSTED, "agent does not read"));
    queue_.push_back(std::move(message));
    end_after_queue_ = end_after_queue_ || end;
    if (queue_.size() == 1) StartWrite(&queue_.front());
  }

  void OnReadDone(bool ok) override {
    const MutexLock lock(service_->mutex_);
    if (!ok) {
      service_->Deliver(service_->coordinator_.OnDisconnect(id_, Clock::now()));
      return End(grpc::Status::OK);
    }
    if (incoming_.node_index() != node_.index) {
      service_->log_("node " + std::to_string(node_.index) + " spoke for node " +
                     std::to_string(incoming_.node_index()) + " and was disconnected");
      service_->Deliver(service_->coordinator_.OnDisconnect(id_, Clock::now()));
      return End(grpc::Status(grpc::PERMISSION_DENIED, "its certificate is another node's"));
    }
    if (const Result<void> taken = gate_.OnMessage(incoming_, Clock::now()); !taken.ok()) {
      const std::string& what = taken.error().message;
      service_->log_("node " + std::to_string(node_.index) + " sent " + what +
                     " and was disconnected");
      service_->Deliver(service_->coordinator_.OnBrokenRules(id_, what, Clock::now()));
      return End(grpc::Status(grpc::INVALID_ARGUMENT, "it sent " + what));
    }
    if (incoming_.has_join()) {
      for (const std::string& line :
           CorrectAddresses(*incoming_.mutable_join(), node_, service_->advertised_address_))
        service_->log_(line);
    }
    service_->Deliver(service_->coordinator_.OnMessage(id_, incoming_, Clock::now()));
    if (!finished_) StartRead(&incoming_);
  }

  void OnWriteDone(bool ok) override {
    const MutexLock lock(service_->mutex_);
    if (finished_) return;
    queue_.pop_front();
    if (!ok) return End(grpc::Status::OK);
    if (!queue_.empty()) return StartWrite(&queue_.front());
    if (end_after_queue_) End(grpc::Status::OK);
  }

  void OnDone() override {
    {
      const MutexLock lock(service_->mutex_);
      service_->sessions_.erase(id_);
      service_->Deliver(service_->coordinator_.OnDisconnect(id_, Clock::now()));
    }
    delete this;
  }

 private:
  void End(const grpc::Status& status) DSL_REQUIRES(service_->mutex_) {
    if (std::exchange(finished_, true)) return;
    Finish(status);
  }

  Service* const service_;
  const SessionId id_;
  const AcceptedNode node_;  // has been proved
  AgentGate gate_;
  pb::AgentMessage incoming_;  // gRPC's until OnReadDone
  // front() is being written.
  std::deque<pb::RendezvousMessage> queue_ DSL_GUARDED_BY(service_->mutex_);
  bool end_after_queue_ DSL_GUARDED_BY(service_->mutex_) = false;
  bool finished_ DSL_GUARDED_BY(service_->mutex_) = false;
};

grpc::ServerBidiReactor<pb::AgentMessage, pb::RendezvousMessage>* RendezvousServer::Service::Attend(
    grpc::CallbackServerContext* context) {
  const MutexLock lock(mutex_);
  const auto behind = node_behind_.find(context->peer());
  const SessionId id = next_session_++;
  auto* session = new Session(
      this, id, behind == node_behind_.end() ? AcceptedNode{.index = kNoNode} : behind->second);
  sessions_.emplace(id, session);
  return session;
}

void RendezvousServer::Service::Deliver(std::vector<Outgoing> messages) {
  if (silent_) return;
  for (Outgoing& outgoing : messages) {
    const auto session = sessions_.find(outgoing.session);
    if (session != sessions_.end())
      session->second->Queue(std::move(outgoing.message), outgoing.end_session);
  }
}

Result<std::unique_ptr<RendezvousServer>> RendezvousServer::Start(
    CoordinatorOptions options, const ListenOptions& listen, const pb::Credentials& credentials,
    Log log) {
  std::unique_ptr<RendezvousServer> self(new RendezvousServer);
  AcceptorOptions door;
  door.job_id = options.job_id;
  door.num_nodes = static_cast<uint32_t>(options.nodes.size());
  door.loopback_only = listen.loopback_only;
  door.port = listen.port;
  self->service_ =
      std::make_unique<Service>(std::move(options), listen.advertised_address, log, Clock::now());

  grpc::ServerBuilder builder;
  SetCommonServerOptions(builder);
  builder.SetMaxReceiveMessageSize(kMaxAgentMessageBytes);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kMaxStreams);
  builder.RegisterService(self->service_.get());
  self->server_ = builder.BuildAndStart();
  if (!self->server_) return Error{ExitCode::kInternal, "gRPC cannot start a server"};
  if (door.num_nodes == 1) return self;
  DSL_TRY_ASSIGN(self->acceptor_,
                 Acceptor::Start(
                     door, credentials,
                     [service = self->service_.get(), server = self->server_.get()](
                         const AcceptedNode& node, UniqueFd plain) {
                       service->SetNodeBehind(plain.get(), node);
                       ServeFd(*server, std::move(plain));
                     },
                     log));
  const int port = self->acceptor_->port();
  if (!door.loopback_only) {
    for (const std::string& address : ReachableAddresses(listen.network_interface))
      self->endpoints_.push_back(JoinHostPort(address, port));
  }
  // A machine without a network can still have several nodes of its own.
  if (self->endpoints_.empty()) self->endpoints_.push_back(JoinHostPort("127.0.0.1", port));
  return self;
}

// What the agents of broken streams seem to say is no decision of anybody.
RendezvousServer::~RendezvousServer() {
  service_->FallSilent();
  acceptor_.reset();
  if (server_) server_->Shutdown(std::chrono::system_clock::now());
}

std::shared_ptr<grpc::Channel> RendezvousServer::InProcessChannel() {
  return server_->InProcessChannel(CommonChannelArguments());
}

void RendezvousServer::Tick() { service_->Tick(); }

}  // namespace dslaunch
