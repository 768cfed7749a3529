#include "rendezvous/server.h"

#include <algorithm>
#include <deque>
#include <map>
#include <utility>

#include "base/mutex.h"
#include "net/acceptor.h"
#include "net/addresses.h"
#include "proto/rendezvous.grpc.pb.h"
#include "proto/wire/channel.h"
#include "rendezvous/agent_gate.h"
#include "rendezvous/join_addresses.h"
#include "rendezvous/unacknowledged.h"

namespace dslaunch {
namespace {

// Limit of the queued messages to an agent. An agent that reads too slowly to stay below it is
// disconnected.
constexpr size_t kMaxQueuedMessages = 1000;

// Limit of the size of an agent's message. The largest message is a heartbeat with the progress of
// a node's ranks, about 50 bytes for each rank.
constexpr int kMaxAgentMessageBytes = 256 << 10;

// gRPC's names of peers: this process, and a descriptor that this process serves.
constexpr char kThisProcess[] = "unknown";
std::string PeerOfFd(int fd) { return "fd:" + std::to_string(fd); }

constexpr uint32_t kNoNode = UINT32_MAX;

// Limit of the streams on a connection. An agent needs a single stream.
constexpr int kMaxStreams = 8;

// Returns the limits for the messages that a node's agent may send.
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
        dead_after_(options.timeouts.dead_ms()),
        node_behind_{{kThisProcess, AcceptedNode{.index = options.rendezvous_node}}},
        coordinator_(std::move(options), now) {}

  grpc::ServerBidiReactor<pb::AgentMessage, pb::RendezvousMessage>* Attend(
      grpc::CallbackServerContext*) override;

  // Records which node is connected through the descriptor `fd`. Call this before serving the
  // descriptor.
  void SetNodeBehind(int fd, const AcceptedNode& node) {
    const MutexLock lock(mutex_);
    node_behind_[PeerOfFd(fd)] = node;
  }

  void Tick() {
    const MutexLock lock(mutex_);
    const Clock::time_point now = Clock::now();
    DropBroken(now);
    coordinator_.SetBootTime(BootClock::now());
    Deliver(coordinator_.OnTick(now));
  }

  // Makes the service drop all messages from now on.
  void StopSending() {
    const MutexLock lock(mutex_);
    silent_ = true;
  }

 private:
  class Session;

  // The state of an agent's stream, which may span several consecutive connections.
  struct Attendance {
    Attendance(const AcceptedNode& accepted, const PeerLimits& limits, Session* session)
        : node(accepted), gate(limits), stream(session) {}
    AcceptedNode node;  // node that the connection's certificate names
    AgentGate gate;
    Session* stream;     // current session; null if the last connection broke
    uint64_t token = 0;  // token that resumes the stream (Join.stream_token)
    ReceivedNumbers received;
    Unacknowledged<pb::RendezvousMessage> sent;
    Clock::time_point broke_at;
  };

  void Deliver(std::vector<Outgoing> messages) DSL_REQUIRES(mutex_);
  // Moves the stream that `resume` names to the session of a new connection. Returns false if that
  // stream does not exist.
  bool Resume(Session& session, const pb::Resume& resume) DSL_REQUIRES(mutex_);
  void OnStreamEnd(Session& session) DSL_REQUIRES(mutex_);
  void Drop(SessionId id) DSL_REQUIRES(mutex_);
  void DropBroken(Clock::time_point now) DSL_REQUIRES(mutex_);

  const Log log_;
  const std::string advertised_address_;
  const std::vector<pb::Node> nodes_;
  const milliseconds dead_after_;
  Mutex mutex_;
  // Authenticated nodes by gRPC's name of the peer.
  std::map<std::string, AcceptedNode> node_behind_ DSL_GUARDED_BY(mutex_);
  Coordinator coordinator_ DSL_GUARDED_BY(mutex_);
  bool silent_ DSL_GUARDED_BY(mutex_) = false;
  SessionId next_session_ DSL_GUARDED_BY(mutex_) = 1;
  std::map<SessionId, Attendance> attendances_ DSL_GUARDED_BY(mutex_);
};

// The stream of an agent over one connection. gRPC owns the object, and OnDone deletes it. All
// state is guarded by the service's mutex.
class RendezvousServer::Service::Session final
    : public grpc::ServerBidiReactor<pb::AgentMessage, pb::RendezvousMessage> {
 public:
  Session(Service* service, SessionId id, uint32_t node) : service_(service), id_(id), node_(node) {
    StartRead(&incoming_);
  }

  // Called by the service with its mutex held.
  SessionId id() const { return id_; }
  void SetId(SessionId id) { id_ = id; }
  uint32_t node() const { return node_; }
  bool is_finished() const {
    service_->mutex_.AssertHeld();
    return finished_;
  }
  void EndStream(const grpc::Status& status) {
    service_->mutex_.AssertHeld();
    End(status);
  }
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
    const auto known = service_->attendances_.find(id_);
    // Another connection may have taken over the stream, so this connection's stream ends.
    if (!ok || known == service_->attendances_.end() || known->second.stream != this) {
      service_->OnStreamEnd(*this);
      return End(grpc::Status::OK);
    }
    Attendance& attendance = known->second;
    if (incoming_.node_index() != node_) {
      service_->log_("node " + std::to_string(node_) + " spoke for node " +
                     std::to_string(incoming_.node_index()) + " and was disconnected");
      service_->Drop(id_);
      return End(grpc::Status(grpc::PERMISSION_DENIED, "its certificate is another node's"));
    }
    if (const Result<void> taken = attendance.gate.OnMessage(incoming_, Clock::now());
        !taken.ok()) {
      const std::string& what = taken.error().message;
      service_->log_("node " + std::to_string(node_) + " sent " + what + " and was disconnected");
      service_->Deliver(service_->coordinator_.OnBrokenRules(id_, what, Clock::now()));
      service_->Drop(id_);
      return End(grpc::Status(grpc::INVALID_ARGUMENT, "it sent " + what));
    }
    if (incoming_.has_resume()) {
      if (!service_->Resume(*this, incoming_.resume()))
        return End(grpc::Status(grpc::NOT_FOUND, "the job continued without this node"));
    } else if (attendance.received.Accept(incoming_.number())) {
      Receive(attendance);
    }
    if (!finished_) StartRead(&incoming_);
  }

  void OnWriteDone(bool ok) override {
    const MutexLock lock(service_->mutex_);
    if (finished_) return;
    queue_.pop_front();
    if (!ok) {
      service_->OnStreamEnd(*this);
      return End(grpc::Status::OK);
    }
    if (!queue_.empty()) return StartWrite(&queue_.front());
    if (end_after_queue_) End(grpc::Status::OK);
  }

  void OnDone() override {
    {
      const MutexLock lock(service_->mutex_);
      service_->OnStreamEnd(*this);
    }
    delete this;
  }

 private:
  void End(const grpc::Status& status) DSL_REQUIRES(service_->mutex_) {
    if (std::exchange(finished_, true)) return;
    Finish(status);
  }
  void Receive(Attendance& attendance) DSL_REQUIRES(service_->mutex_) {
    if (incoming_.has_heartbeat()) attendance.sent.Acknowledge(incoming_.heartbeat().received());
    if (incoming_.has_join()) {
      attendance.token = incoming_.join().stream_token();
      for (const std::string& line : CorrectAddresses(*incoming_.mutable_join(), attendance.node,
                                                      service_->advertised_address_))
        service_->log_(line);
    }
    service_->coordinator_.SetBootTime(BootClock::now());
    service_->Deliver(service_->coordinator_.OnMessage(id_, incoming_, Clock::now()));
  }

  Service* const service_;
  SessionId id_;  // session that this connection serves; guarded by the service's mutex
  const uint32_t node_;
  pb::AgentMessage incoming_;  // message being read; owned by gRPC until OnReadDone
  // Messages to send; front() is being written.
  std::deque<pb::RendezvousMessage> queue_ DSL_GUARDED_BY(service_->mutex_);
  bool end_after_queue_ DSL_GUARDED_BY(service_->mutex_) = false;
  bool finished_ DSL_GUARDED_BY(service_->mutex_) = false;
};

grpc::ServerBidiReactor<pb::AgentMessage, pb::RendezvousMessage>* RendezvousServer::Service::Attend(
    grpc::CallbackServerContext* context) {
  const MutexLock lock(mutex_);
  const auto behind = node_behind_.find(context->peer());
  const SessionId id = next_session_++;
  const AcceptedNode node =
      behind == node_behind_.end() ? AcceptedNode{.index = kNoNode} : behind->second;
  auto* session = new Session(this, id, node.index);
  attendances_.emplace(id, Attendance(node, LimitsOf(nodes_, node.index), session));
  return session;
}

void RendezvousServer::Service::Deliver(std::vector<Outgoing> messages) {
  if (silent_) return;
  std::vector<SessionId> ended;  // sessions to drop that have no connection to notify
  for (Outgoing& outgoing : messages) {
    const auto found = attendances_.find(outgoing.session);
    if (found == attendances_.end()) continue;
    Attendance& attendance = found->second;
    pb::RendezvousMessage& message = outgoing.message;
    if (message.has_heartbeat())
      message.mutable_heartbeat()->set_received(attendance.received.newest());
    else if (attendance.token != 0)
      attendance.sent.Keep(message);
    const bool is_too_much = attendance.sent.kept().size() > kMaxQueuedMessages;
    if (attendance.stream == nullptr) {
      if (outgoing.end_session || is_too_much) ended.push_back(outgoing.session);
    } else if (is_too_much) {
      attendance.stream->EndStream(grpc::Status(grpc::RESOURCE_EXHAUSTED, "agent does not read"));
    } else {
      attendance.stream->Queue(std::move(message), outgoing.end_session);
    }
  }
  for (const SessionId id : ended) Drop(id);
}

bool RendezvousServer::Service::Resume(Session& session, const pb::Resume& resume) {
  const auto found = std::ranges::find_if(attendances_, [&](const auto& entry) {
    return entry.second.node.index == session.node() && entry.second.token != 0 &&
           entry.second.token == resume.stream_token() && entry.first != session.id();
  });
  if (found == attendances_.end()) return false;
  Attendance& attendance = found->second;
  // This process may not have detected the end of the broken connection yet, so the old stream is
  // ended now.
  if (Session* const last = std::exchange(attendance.stream, nullptr))
    last->EndStream(grpc::Status(grpc::ABORTED, "replaced by another connection"));
  const auto own = attendances_.find(session.id());
  attendance.node = own->second.node;
  attendances_.erase(own);
  session.SetId(found->first);
  attendance.stream = &session;
  attendance.sent.Acknowledge(resume.received());
  for (const pb::RendezvousMessage& message : attendance.sent.kept())
    session.Queue(message, /*end=*/false);
  log_("node " + std::to_string(session.node()) + " is connected to the rendezvous again");
  return true;
}

void RendezvousServer::Service::OnStreamEnd(Session& session) {
  const auto found = attendances_.find(session.id());
  if (found == attendances_.end() || found->second.stream != &session) return;
  Attendance& attendance = found->second;
  attendance.stream = nullptr;
  const bool broke = attendance.node.broke && *attendance.node.broke;
  if (attendance.token == 0 || !broke || session.is_finished()) return Drop(session.id());
  attendance.broke_at = Clock::now();
  log_("the connection of node " + std::to_string(session.node()) +
       " to the rendezvous broke; the node may reconnect");
}

void RendezvousServer::Service::Drop(SessionId id) {
  if (attendances_.erase(id) > 0) Deliver(coordinator_.OnDisconnect(id, Clock::now()));
}

void RendezvousServer::Service::DropBroken(Clock::time_point now) {
  std::vector<SessionId> gone;
  for (const auto& [id, attendance] : attendances_) {
    if (attendance.stream == nullptr && now - attendance.broke_at >= dead_after_)
      gone.push_back(id);
  }
  for (const SessionId id : gone) Drop(id);
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
  // The machine may have no network, but its nodes can still reach each other by the loopback
  // address, so that address is used.
  if (self->endpoints_.empty()) self->endpoints_.push_back(JoinHostPort("127.0.0.1", port));
  return self;
}

// The shutdown breaks all streams, and the coordinator would treat them as lost agents, so sending
// stops first.
RendezvousServer::~RendezvousServer() {
  service_->StopSending();
  acceptor_.reset();
  if (server_) server_->Shutdown(std::chrono::system_clock::now());
}

std::shared_ptr<grpc::Channel> RendezvousServer::InProcessChannel() {
  return server_->InProcessChannel(CommonChannelArguments());
}

void RendezvousServer::Tick() { service_->Tick(); }

}  // namespace dslaunch
