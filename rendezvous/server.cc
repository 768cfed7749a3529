#include "rendezvous/server.h"

#include <deque>
#include <utility>

#include "base/mutex.h"
#include "net/acceptor.h"
#include "net/addresses.h"
#include "proto/rendezvous.grpc.pb.h"
#include "proto/wire/channel.h"

namespace dslaunch {
namespace {

// An agent that does not read its messages is as good as gone.
constexpr size_t kMaxQueuedMessages = 1000;

// The largest is a heartbeat with the progress of a node's ranks, of which each takes some 50
// bytes.
constexpr int kMaxAgentMessageBytes = 256 << 10;

// gRPC's names of the other end: of this process, and of a descriptor that it serves.
constexpr char kThisProcess[] = "unknown";
std::string PeerOfFd(int fd) { return "fd:" + std::to_string(fd); }

constexpr uint32_t kNoNode = UINT32_MAX;

}  // namespace

class RendezvousServer::Service final : public pb::Rendezvous::CallbackService {
 public:
  Service(CoordinatorOptions options, Log log, Clock::time_point now)
      : log_(std::move(log)),
        node_behind_{{kThisProcess, options.rendezvous_node}},
        coordinator_(std::move(options), now) {}

  grpc::ServerBidiReactor<pb::AgentMessage, pb::RendezvousMessage>* Attend(
      grpc::CallbackServerContext*) override;

  // Who is behind a descriptor that is going to be served.
  void SetNodeBehind(int fd, uint32_t node_index) {
    const MutexLock lock(mutex_);
    node_behind_[PeerOfFd(fd)] = node_index;
  }

  void Tick() {
    const MutexLock lock(mutex_);
    Deliver(coordinator_.OnTick(Clock::now()));
  }

  // From now on nobody is told anything.
  void FallSilent() {
    const MutexLock lock(mutex_);
    silent_ = true;
  }

 private:
  class Session;

  void Deliver(std::vector<Outgoing> messages) DSL_REQUIRES(mutex_);

  const Log log_;
  Mutex mutex_;
  std::map<std::string, uint32_t> node_behind_ DSL_GUARDED_BY(mutex_);  // by gRPC's name
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
  Session(Service* service, SessionId id, uint32_t node_index)
      : service_(service), id_(id), node_index_(node_index) {
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
    if (incoming_.node_index() != node_index_) {
      service_->log_("node " + std::to_string(node_index_) + " spoke for node " +
                     std::to_string(incoming_.node_index()) + " and was disconnected");
      service_->Deliver(service_->coordinator_.OnDisconnect(id_, Clock::now()));
      return End(grpc::Status(grpc::PERMISSION_DENIED, "its certificate is another node's"));
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
  const uint32_t node_index_;  // has been proved
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
  auto* session = new Session(this, id, behind == node_behind_.end() ? kNoNode : behind->second);
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
  self->service_ = std::make_unique<Service>(std::move(options), log, Clock::now());

  grpc::ServerBuilder builder;
  SetCommonServerOptions(builder);
  builder.SetMaxReceiveMessageSize(kMaxAgentMessageBytes);
  builder.RegisterService(self->service_.get());
  self->server_ = builder.BuildAndStart();
  if (!self->server_) return Error{ExitCode::kInternal, "gRPC cannot start a server"};
  if (door.num_nodes == 1) return self;
  DSL_TRY_ASSIGN(self->acceptor_,
                 Acceptor::Start(
                     door, credentials,
                     [service = self->service_.get(), server = self->server_.get()](
                         uint32_t node_index, UniqueFd plain) {
                       service->SetNodeBehind(plain.get(), node_index);
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
