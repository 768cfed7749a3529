#include "cli/per_node/per_node_peer.h"

#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <asio/post.hpp>
#include <utility>

#include "base/os/socket_pair.h"
#include "cli/per_node/per_node_admission.h"

namespace dslaunch {
namespace {

// Returns the address as text. An IPv4 address is returned as such, even from a socket for both
// families.
std::string NumericAddress(const sockaddr_storage& address, socklen_t size) {
  char text[NI_MAXHOST] = "";
  getnameinfo(reinterpret_cast<const sockaddr*>(&address), size, text, sizeof text, nullptr, 0,
              NI_NUMERICHOST);
  constexpr std::string_view kMapped = "::ffff:";
  const std::string_view shown(text);
  return std::string(shown.starts_with(kMapped) ? shown.substr(kMapped.size()) : shown);
}

template <class GetName>
std::string AddressOf(int fd, GetName get_name) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (get_name(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) return "";
  return NumericAddress(address, size);
}

}  // namespace

Peer::Peer(asio::io_context& loop, UniqueFd fd, TokenTls* tls)
    : loop_(loop),
      tls_(tls),
      tcp_(std::move(fd)),
      address_(AddressOf(tcp_.get(), getpeername)),
      own_address_(AddressOf(tcp_.get(), getsockname)),
      limit_(loop) {}

void Peer::Start(milliseconds limit, Handlers handlers) {
  handlers_ = std::move(handlers);
  limit_.expires_after(limit);
  limit_.async_wait([self = weak_from_this()](const asio::error_code& error) {
    const std::shared_ptr<Peer> peer = self.lock();
    if (!error && peer) peer->Strange("it did not identify itself");
  });
  if (tls_ == nullptr) return Open(std::move(tcp_));
  handshake_ = tls_->Wrap(TokenTls::Role::kServer, std::move(tcp_), limit,
                          [&loop = loop_, self = weak_from_this()](Result<UniqueFd> plain) {
                            asio::post(loop, [self, plain = std::move(plain)]() mutable {
                              const std::shared_ptr<Peer> peer = self.lock();
                              if (!peer || peer->stage() == Stage::kGone) return;
                              if (!plain.ok()) return peer->Strange(plain.error().message);
                              peer->Open(*std::move(plain));
                            });
                          });
}

void Peer::Open(UniqueFd fd) {
  socket_ = std::make_unique<FramedSocket>(
      loop_, std::move(fd), [this](std::string_view bytes) { OnMessage(bytes); },
      [this](const std::string& why) { OnClosed(why); }, kMaxNodeMessageBytes);
}

void Peer::Send(const pb::NodeMessage& message) {
  if (socket_) (void)socket_->Send(message);  // a failure is reported by OnClosed
}

Peer::Stage Peer::stage() const {
  const MutexLock lock(mutex_);
  return stage_;
}

void Peer::SetStage(Stage stage) {
  const MutexLock lock(mutex_);
  stage_ = stage;
  changed_.NotifyAll();
}

// --- Messages of the node's command ---

void Peer::OnMessage(std::string_view bytes) {
  // Keeps this object alive, because a handler may release it.
  const std::shared_ptr<Peer> self = shared_from_this();
  pb::NodeMessage message;
  const bool is_message = message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()));
  if (stage() == Stage::kAsking) {
    if (is_message && message.request().magic() == kPerNodeMagic)
      return OnRequest(message.request());
    return Strange("it does not use dslaunch's protocol");
  }
  switch (message.message_case()) {
    case pb::NodeMessage::kAgentUp:
      if (stage() == Stage::kStarting && stream_) {
        stream_->Start();
        SetStage(Stage::kUp);
      }
      break;
    case pb::NodeMessage::kAgentFailed: {
      EndStream();
      const MutexLock lock(mutex_);
      failure_ = Error{static_cast<ExitCode>(
                           FailureCode(message.agent_failed().exit_code(), ExitCode::kUnavailable)),
                       message.agent_failed().message()};
      stage_ = Stage::kWaiting;
      changed_.NotifyAll();
      break;
    }
    case pb::NodeMessage::kAgentEnded: {
      EndStream();
      const MutexLock lock(mutex_);
      words_ = message.agent_ended().words();
      stage_ = Stage::kWaiting;
      changed_.NotifyAll();
      break;
    }
    case pb::NodeMessage::kStream:
      if (stream_) stream_->Deliver(std::move(*message.mutable_stream()));
      break;
    case pb::NodeMessage::kStreamEnd:
      if (stream_) stream_->DeliverEnd();
      break;
    default:
      break;
  }
}

void Peer::OnRequest(const pb::AdmissionRequest& request) {
  limit_.cancel();
  {
    const MutexLock lock(mutex_);
    public_key_ = request.public_key();
  }
  SetStage(Stage::kWaiting);
  std::exchange(handlers_.asks, nullptr)(request);
}

void Peer::Strange(const std::string& why) {
  const std::shared_ptr<Peer> self = shared_from_this();
  const auto strange = std::exchange(handlers_.strange, nullptr);
  Drop();
  if (strange) strange(why);
}

void Peer::OnClosed(const std::string& why) {
  if (stage() == Stage::kAsking) return Strange(why);
  const std::shared_ptr<Peer> self = shared_from_this();
  const auto gone = std::exchange(handlers_.gone, nullptr);
  Drop();
  if (gone) gone();
}

void Peer::Refuse(const Error& error) {
  pb::NodeMessage message;
  message.mutable_refused()->set_exit_code(ToInt(error.code));
  message.mutable_refused()->set_message(error.message);
  Send(message);
  Drop();
}

void Peer::Drop() {
  limit_.cancel();
  handlers_ = {};
  EndStream();
  SetStage(Stage::kGone);
  socket_.reset();
  if (tls_ != nullptr) tls_->Cancel(handshake_);
}

// --- The stream to the node's agent ---

void Peer::OpenStream(const std::shared_ptr<UniqueFd>& local) {
  stream_ = std::make_shared<CarriedStream>(
      loop_, std::move(*local), [this](const pb::NodeMessage& message) { Send(message); });
}

void Peer::EndStream() {
  if (stream_) std::exchange(stream_, nullptr)->Close();
}

Result<UniqueFd> Peer::StartAgent(const pb::AdmissionAccepted& accepted, Deadline deadline) {
  DSL_TRY_ASSIGN(SocketPair pair, MakeSocketPair());
  auto local = std::make_shared<UniqueFd>(std::move(pair.theirs));
  MutexLock lock(mutex_);
  if (stage_ != Stage::kWaiting) {
    return Error{ExitCode::kUnavailable,
                 accepted.name() + (stage_ == Stage::kGone ? ": its command has ended"
                                                           : ": its last agent has not ended yet")};
  }
  stage_ = Stage::kStarting;
  failure_.reset();
  words_.clear();
  asio::post(loop_, [self = shared_from_this(), local, accepted] {
    if (self->stage() != Stage::kStarting) return;
    self->OpenStream(local);
    pb::NodeMessage message;
    *message.mutable_accepted() = accepted;
    self->Send(message);
  });
  const bool in_time = changed_.WaitUntil(mutex_, deadline.when(), [this]() DSL_REQUIRES(mutex_) {
    return stage_ != Stage::kStarting;
  });
  if (stage_ == Stage::kUp) return std::move(pair.ours);
  if (failure_) return *failure_;
  const std::string what = in_time ? "its command has ended" : "it did not start its agent in time";
  lock.Unlock();
  if (!in_time) AbortStream();
  return Error{in_time ? ExitCode::kUnavailable : ExitCode::kTimedOut,
               accepted.name() + ": " + what};
}

void Peer::AbortStream() {
  asio::post(loop_, [self = shared_from_this()] {
    if (!self->stream_) return;
    self->EndStream();
    pb::NodeMessage message;
    message.mutable_stream_end()->set_abort(true);
    self->Send(message);
  });
}

bool Peer::WaitAgentEnd(Deadline deadline) const {
  const MutexLock lock(mutex_);
  return changed_.WaitUntil(mutex_, deadline.when(), [this]() DSL_REQUIRES(mutex_) {
    return stage_ == Stage::kWaiting || stage_ == Stage::kGone;
  });
}

bool Peer::WaitGone(Deadline deadline) const {
  const MutexLock lock(mutex_);
  return changed_.WaitUntil(mutex_, deadline.when(),
                            [this]() DSL_REQUIRES(mutex_) { return stage_ == Stage::kGone; });
}

std::string Peer::public_key() const {
  const MutexLock lock(mutex_);
  return public_key_;
}

std::string Peer::words() const {
  const MutexLock lock(mutex_);
  return words_;
}

}  // namespace dslaunch
