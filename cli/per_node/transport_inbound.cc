#include "cli/per_node/transport_inbound.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <asio/post.hpp>
#include <asio/signal_set.hpp>
#include <cerrno>
#include <csignal>
#include <utility>

#include "base/count.h"
#include "base/text/sanitize.h"
#include "base/text/signal_name.h"
#include "net/certificate_authority.h"
#include "net/connection.h"

namespace dslaunch {
namespace {

constexpr milliseconds kRequestLimit(5'000);  // limit for the arrival of a connection's request
// Limit of connections without a request. A node sends its request in its first packet, so the
// limit may be low.
constexpr size_t kMaxAsking = 32;
constexpr size_t kMaxRefusalsLogged = 20;
// Pause before the next accept after no descriptor was free.
constexpr milliseconds kAcceptAgain(1'000);
constexpr milliseconds kFinalStatusWait(3'000);

class InboundLink : public NodeLink {
 public:
  // Keeps `owner` alive, because it owns the loop that serves the peer.
  InboundLink(std::shared_ptr<const void> owner, std::shared_ptr<Peer> peer, UniqueFd stream)
      : owner_(std::move(owner)), peer_(std::move(peer)), stream_(std::move(stream)) {}
  ~InboundLink() override { peer_->AbortStream(); }

  UniqueFd TakeFd() override { return std::move(stream_); }
  void Abort(const std::string&) override { peer_->AbortStream(); }
  bool WaitEnd(Deadline deadline) override { return peer_->WaitAgentEnd(deadline); }
  std::string StderrTail() const override { return peer_->words(); }
  std::string Address() const override { return peer_->address(); }
  std::string OwnAddress() const override { return peer_->own_address(); }
  std::string PublicKey() const override { return peer_->public_key(); }

 private:
  const std::shared_ptr<const void> owner_;
  const std::shared_ptr<Peer> peer_;
  UniqueFd stream_;
};

int PortOf(int fd) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size);
  return ntohs(address.ss_family == AF_INET6
                   ? reinterpret_cast<const sockaddr_in6&>(address).sin6_port
                   : reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

}  // namespace

InboundTransport::InboundTransport(UniqueFd listener, AdmissionOptions options,
                                   std::shared_ptr<TokenTls> tls, std::unique_ptr<Transport> own)
    : listener_(loop_, listener.Release()),
      accept_timer_(loop_),
      decide_timer_(loop_),
      tls_(std::move(tls)),
      own_(std::move(own)),
      host_name_(options.own.host_name()),
      arguments_(options.own.program().arguments()),
      admission_(std::move(options), Clock::now()),
      at_place_(admission_.names().size()) {}

InboundTransport::~InboundTransport() {
  loop_.stop();
  if (thread_.joinable()) thread_.join();
}

// --- Connections of nodes ---

void InboundTransport::Accept() {
  listener_.async_wait(listener_.wait_read, [this](const asio::error_code& error) {
    if (error) return;
    while (true) {
      UniqueFd fd(
          accept4(listener_.native_handle(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (fd) {
        OnConnection(std::move(fd));
      } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
        accept_timer_.expires_after(kAcceptAgain);
        return accept_timer_.async_wait([this](const asio::error_code&) { Accept(); });
      } else if (errno != EINTR && errno != ECONNABORTED) {
        break;
      }
    }
    Accept();
  });
}

void InboundTransport::OnConnection(UniqueFd fd) {
  SetConnectionOptions(fd.get());
  const PeerId id = next_peer_++;
  auto peer = std::make_shared<Peer>(loop_, std::move(fd), tls_.get());
  peers_.emplace(id, peer);
  asking_.push_back(id);
  peer->Start(
      kRequestLimit,
      {[this, id](const pb::AdmissionRequest& request) { OnRequest(id, request); },
       [this, id](const std::string& why) { OnStranger(id, why); }, [this, id] { OnGone(id); }});
  if (asking_.size() <= kMaxAsking) return;
  const PeerId oldest = asking_.front();
  peers_.at(oldest)->Drop();
  OnStranger(oldest, "too many connections at once");
}

std::string InboundTransport::WhereOf(PeerId id) const {
  return host_names_.at(id) + " (" + peers_.at(id)->address() + ")";
}

void InboundTransport::OnRequest(PeerId id, const pb::AdmissionRequest& request) {
  std::erase(asking_, id);
  host_names_[id] = Truncate(request.host_name());
  if (!IsPublicKey(request.public_key())) {
    return Refuse(id, {ExitCode::kUsage, WhereOf(id) + " sent no public key for its certificate"});
  }
  if (const std::optional<Error> why = admission_.Admit(id, request, WhereOf(id), Clock::now()))
    return Refuse(id, *why);
  const std::optional<size_t> place = admission_.PlaceOf(id);
  log_((place ? admission_.names()[*place] + " has joined: " : "") + WhereOf(id) +
       (place ? "" : " has joined") + ", " + Count(request.slots(), "slot") +
       (gathering_ ? " (" + std::to_string(admission_.present()) + " of " +
                         Count(admission_.names().size(), "node") + ")"
                   : ""));
  if (request.program().arguments() != arguments_)
    log_("it has other arguments than node 0: " + SanitizeForTerminal(request.program().shown()));
  if (!gathering_) Publish();
  NotifyWaiting();
  Reconsider();
}

void InboundTransport::Refuse(PeerId id, const Error& error) {
  if (refusals_logged_.size() < kMaxRefusalsLogged && refusals_logged_.insert(error.message).second)
    log_("refused a node: " + SanitizeForTerminal(error.message));
  const std::shared_ptr<Peer> peer = peers_.at(id);
  peers_.erase(id);
  peer->Refuse(error);
}

void InboundTransport::OnStranger(PeerId id, const std::string& why) {
  std::erase(asking_, id);
  const std::string address = peers_.at(id)->address();
  peers_.erase(id);
  if (std::exchange(stranger_said_, true)) return;
  log_("refused an unknown connection from " + address + ": " + why +
       "; further ones are not reported");
}

void InboundTransport::OnGone(PeerId id) {
  const std::optional<size_t> place = admission_.PlaceOf(id);
  if (gathering_)
    log_((place ? admission_.names()[*place] + ": " : "") + WhereOf(id) + " has left");
  admission_.Leave(id);
  peers_.erase(id);
  if (!gathering_) return Publish();
  NotifyWaiting();
  Reconsider();
}

void InboundTransport::NotifyWaiting() {
  if (!gathering_) return;
  pb::NodeMessage message;
  message.mutable_awaited()->set_present(static_cast<uint32_t>(admission_.present()));
  message.mutable_awaited()->set_wanted(static_cast<uint32_t>(admission_.names().size()));
  for (const auto& [id, peer] : peers_) {
    if (std::ranges::find(asking_, id) == asking_.end()) peer->Send(message);
  }
}

// --- Before the job starts ---

Result<void> InboundTransport::Gather(const Log& say) {
  log_ = say;
  asio::signal_set signals(loop_);
  for (const int signal_number : NotIgnored({SIGINT, SIGTERM, SIGHUP})) signals.add(signal_number);
  signals.async_wait([this](const asio::error_code& error, int signal_number) {
    if (error) return;
    gathered_ = Error{static_cast<ExitCode>(ExitCodeForSignal(signal_number)),
                      "interrupted by " + SignalName(signal_number) +
                          " while waiting for nodes; nothing was started"};
    loop_.stop();
  });
  Accept();
  Reconsider();
  if (!gathered_) {
    log_("waiting for " + Count(admission_.names().size() - admission_.present(), "more node") +
         " on port " + std::to_string(PortOf(listener_.native_handle())));
  }
  loop_.run();
  signals.clear();
  gathering_ = false;
  if (!gathered_->ok()) {
    Dismiss(gathered_->error());
    return *gathered_;
  }
  admission_.Start();
  Publish();
  return {};
}

void InboundTransport::Reconsider() {
  if (!gathering_ || gathered_) return;
  const Admission::Decision decision = admission_.Decide(Clock::now());
  if (decision.verdict == Admission::Decision::Verdict::kWait) {
    decide_timer_.expires_at(decision.wake);
    return decide_timer_.async_wait([this](const asio::error_code& error) {
      if (!error) Reconsider();
    });
  }
  gathered_ = decision.verdict == Admission::Decision::Verdict::kStart
                  ? Result<void>()
                  : Result<void>(Error{ExitCode::kTimedOut, decision.reason});
  loop_.stop();
}

void InboundTransport::Dismiss(const Error& error) {
  listener_.close();
  for (const auto& [id, peer] : std::exchange(peers_, {})) peer->Refuse(error);
  if (tls_) tls_->Flush(Deadline::After(kFinalStatusWait));
}

// --- While the job runs ---

void InboundTransport::Serve(Log say) {
  log_ = std::move(say);
  loop_.restart();
  thread_ = std::thread([this] { loop_.run(); });
}

void InboundTransport::Publish() {
  const MutexLock lock(mutex_);
  for (size_t place = 1; place < at_place_.size(); ++place) {
    const std::optional<PeerId> id = admission_.PeerAt(place);
    at_place_[place] = id ? peers_.at(*id) : nullptr;
  }
  changed_.NotifyAll();
}

Result<std::unique_ptr<NodeLink>> InboundTransport::Connect(const NodeTarget& target,
                                                            Deadline deadline) {
  const std::vector<std::string>& names = admission_.names();
  const auto place = static_cast<size_t>(std::ranges::find(names, target.name) - names.begin());
  if (place == 0) return own_->Connect(target, deadline);
  std::shared_ptr<Peer> peer;
  {
    const MutexLock lock(mutex_);
    if (!asked_for_.insert(target.name).second)
      changed_.WaitUntil(mutex_, deadline.when(),
                         [&]() DSL_REQUIRES(mutex_) { return at_place_[place] != nullptr; });
    peer = at_place_[place];
  }
  if (!peer) return Error{ExitCode::kUnavailable, target.name + " has not joined"};
  pb::AdmissionAccepted accepted;
  accepted.set_name(target.name);
  accepted.set_front_end(host_name_);
  DSL_TRY_ASSIGN(UniqueFd stream, peer->StartAgent(accepted, deadline));
  return std::unique_ptr<NodeLink>(
      std::make_unique<InboundLink>(weak_from_this().lock(), std::move(peer), std::move(stream)));
}

void InboundTransport::Conclude(int exit_code, const std::string& text) {
  pb::NodeMessage message;
  message.mutable_job_ended()->set_exit_code(exit_code);
  message.mutable_job_ended()->set_message(text);
  std::vector<std::shared_ptr<Peer>> told;
  {
    const MutexLock lock(mutex_);
    for (const std::shared_ptr<Peer>& peer : at_place_) {
      if (peer) told.push_back(peer);
    }
  }
  asio::post(loop_, [this, message, told] {
    listener_.close();
    for (const std::shared_ptr<Peer>& peer : told) peer->Send(message);
  });
  const Deadline deadline = Deadline::After(kFinalStatusWait);
  for (const std::shared_ptr<Peer>& peer : told) peer->WaitGone(deadline);
}

}  // namespace dslaunch
