#include "rendezvous/server.h"

#include <deque>
#include <mutex>
#include <utility>

#include "proto/rendezvous.grpc.pb.h"
#include "rendezvous/addresses.h"
#include "rendezvous/channel.h"

namespace dslaunch {
namespace {

// An agent that does not read its messages is as good as gone.
constexpr size_t kMaxQueuedMessages = 1000;

}  // namespace

class RendezvousServer::Service final : public pb::Rendezvous::CallbackService {
 public:
  Service(CoordinatorOptions options, Clock::time_point now)
      : coordinator_(std::move(options), now) {}

  grpc::ServerBidiReactor<pb::AgentMessage, pb::RendezvousMessage>* Attend(
      grpc::CallbackServerContext*) override;

  void Tick() {
    const std::lock_guard lock(mutex_);
    Deliver(coordinator_.OnTick(Clock::now()));
  }

  // From now on nobody is told anything.
  void FallSilent() {
    const std::lock_guard lock(mutex_);
    silent_ = true;
  }

 private:
  class Session;

  // The following need mutex_ held.
  void Deliver(std::vector<Outgoing> messages);

  std::mutex mutex_;
  Coordinator coordinator_;
  bool silent_ = false;
  SessionId next_session_ = 1;
  std::map<SessionId, Session*> sessions_;
};

// One agent's stream. gRPC owns its life: OnDone deletes it. All state is guarded by the service's
// mutex.
class RendezvousServer::Service::Session final
    : public grpc::ServerBidiReactor<pb::AgentMessage, pb::RendezvousMessage> {
 public:
  Session(Service* service, SessionId id) : service_(service), id_(id) { StartRead(&incoming_); }

  void Queue(pb::RendezvousMessage message, bool end) {
    if (finished_) return;
    if (queue_.size() >= kMaxQueuedMessages)
      return End(grpc::Status(grpc::RESOURCE_EXHAUSTED, "agent does not read"));
    queue_.push_back(std::move(message));
    end_after_queue_ = end_after_queue_ || end;
    if (queue_.size() == 1) StartWrite(&queue_.front());
  }

  void OnReadDone(bool ok) override {
    const std::lock_guard lock(service_->mutex_);
    if (!ok) {
      service_->Deliver(service_->coordinator_.OnDisconnect(id_, Clock::now()));
      return End(grpc::Status::OK);
    }
    service_->Deliver(service_->coordinator_.OnMessage(id_, incoming_, Clock::now()));
    if (!finished_) StartRead(&incoming_);
  }

  void OnWriteDone(bool ok) override {
    const std::lock_guard lock(service_->mutex_);
    if (finished_) return;
    queue_.pop_front();
    if (!ok) return End(grpc::Status::OK);
    if (!queue_.empty()) return StartWrite(&queue_.front());
    if (end_after_queue_) End(grpc::Status::OK);
  }

  void OnDone() override {
    {
      const std::lock_guard lock(service_->mutex_);
      service_->sessions_.erase(id_);
      service_->Deliver(service_->coordinator_.OnDisconnect(id_, Clock::now()));
    }
    delete this;
  }

 private:
  void End(const grpc::Status& status) {
    if (std::exchange(finished_, true)) return;
    Finish(status);
  }

  Service* const service_;
  const SessionId id_;
  pb::AgentMessage incoming_;
  std::deque<pb::RendezvousMessage> queue_;  // front() is being written
  bool end_after_queue_ = false;
  bool finished_ = false;
};

grpc::ServerBidiReactor<pb::AgentMessage, pb::RendezvousMessage>* RendezvousServer::Service::Attend(
    grpc::CallbackServerContext*) {
  const std::lock_guard lock(mutex_);
  const SessionId id = next_session_++;
  auto* session = new Session(this, id);
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
    CoordinatorOptions options, const pb::Credentials& credentials) {
  std::unique_ptr<RendezvousServer> self(new RendezvousServer);
  const bool one_node = options.nodes.size() == 1;
  const bool one_machine = options.one_machine;
  self->service_ = std::make_unique<Service>(std::move(options), Clock::now());

  grpc::ServerBuilder builder;
  SetCommonServerOptions(builder);
  builder.RegisterService(self->service_.get());
  int port = 0;
  if (!one_node) {
    builder.AddListeningPort(one_machine ? "127.0.0.1:0" : "[::]:0",
                             RendezvousServerCredentials(credentials), &port);
  }
  self->server_ = builder.BuildAndStart();
  if (!self->server_ || (!one_node && port == 0)) {
    return Error{ExitCode::kUnavailable, "cannot open a TCP port for the rendezvous"};
  }
  if (!one_node) {
    for (const std::string& address :
         one_machine ? std::vector<std::string>{"127.0.0.1"} : ReachableAddresses()) {
      self->endpoints_.push_back(JoinHostPort(address, port));
    }
    // A machine without a network can still have several nodes of its own.
    if (self->endpoints_.empty()) self->endpoints_.push_back(JoinHostPort("127.0.0.1", port));
  }
  return self;
}

// What the agents of broken streams seem to say is no decision of anybody.
RendezvousServer::~RendezvousServer() {
  service_->FallSilent();
  if (server_) server_->Shutdown(std::chrono::system_clock::now());
}

std::shared_ptr<grpc::Channel> RendezvousServer::InProcessChannel() {
  return server_->InProcessChannel(CommonChannelArguments());
}

void RendezvousServer::Tick() { service_->Tick(); }

}  // namespace dslaunch
