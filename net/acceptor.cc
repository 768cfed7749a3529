#include "net/acceptor.h"

#include <asio/io_context.hpp>
#include <asio/ip/tcp.hpp>
#include <asio/ip/v6_only.hpp>
#include <asio/steady_timer.hpp>
#include <cerrno>
#include <map>
#include <set>
#include <thread>
#include <utility>

#include "base/errno_text.h"
#include "base/os/socket_pair.h"
#include "net/connection.h"
#include "net/pending_connections.h"
#include "net/tls_relay.h"

namespace dslaunch {
namespace {

using asio::ip::tcp;

// Pause after an error that no peer caused, such as too many open files.
constexpr milliseconds kAcceptPause(100);
// Time after which a handshake counts as slow, because a node completes it within milliseconds. If
// no descriptor is free, a connection with a slow handshake is closed to make room for the next
// connection.
constexpr milliseconds kProofIsSlow(500);
constexpr size_t kMaxRefusalsReported = 100;

std::error_code Listen(tcp::acceptor& listener, const tcp::endpoint& endpoint) {
  std::error_code error;
  listener.open(endpoint.protocol(), error);
  // Connections of the previous job may be in TIME_WAIT, so the address is reused to bind a fixed
  // port at once.
  if (!error) listener.set_option(tcp::acceptor::reuse_address(true), error);
  if (!error && endpoint.address().is_v6()) listener.set_option(asio::ip::v6_only(false), error);
  if (!error) listener.bind(endpoint, error);
  if (!error) listener.listen(asio::socket_base::max_listen_connections, error);
  if (error) {
    std::error_code ignored;
    listener.close(ignored);
  }
  return error;
}

// Returns the numeric address of an endpoint; the IPv4 address of an IPv4 peer of a dual-stack
// socket.
std::string NumericAddress(const tcp::endpoint& endpoint) {
  const asio::ip::address address = endpoint.address();
  if (address.is_v6() && address.to_v6().is_v4_mapped())
    return asio::ip::make_address_v4(asio::ip::v4_mapped, address.to_v6()).to_string();
  return address.to_string();
}

}  // namespace

class Acceptor::Loop {
 public:
  Loop(const AcceptorOptions& options, asio::ssl::context tls, OnNode on_node, OnRefused on_refused)
      : options_(options),
        on_node_(std::move(on_node)),
        on_refused_(std::move(on_refused)),
        tls_(std::move(tls)),
        room_(options.max_unproven) {}

  ~Loop() {
    context_.stop();
    if (thread_.joinable()) thread_.join();
  }

  Result<void> Open() {
    const auto port = static_cast<asio::ip::port_type>(options_.port);
    std::error_code error;
    if (options_.loopback_only) {
      error = Listen(listener_, {asio::ip::address_v4::loopback(), port});
    } else if (Listen(listener_, {tcp::v6(), port})) {
      error = Listen(listener_, {tcp::v4(), port});  // IPv4 only, because the machine may lack IPv6
    }
    if (error) {
      return Error{ExitCode::kUnavailable, "cannot open TCP port " +
                                               (port == 0 ? "" : std::to_string(port) + " ") +
                                               "for " + options_.purpose + ": " + error.message()};
    }
    port_ = listener_.local_endpoint().port();
    Accept();
    thread_ = std::thread([this] { context_.run(); });
    return {};
  }

  int port() const { return port_; }

 private:
  // A connection that has not yet proved which node it comes from.
  struct Newcomer {
    std::shared_ptr<TlsStream> stream;
    std::string address;
    std::string own_address;
    Clock::time_point since;
  };

  void Accept() {
    listener_.async_accept([this](std::error_code error, tcp::socket socket) {
      if (!error) {
        Welcome(std::move(socket));
        return Accept();
      }
      Notify("cannot accept connections: " + ErrnoText(error.value()));
      if (IsOutOfDescriptors(error) && PushOutSlow()) return Accept();
      pause_.expires_after(kAcceptPause);
      pause_.async_wait([this](std::error_code) { Accept(); });
    });
  }

  static bool IsOutOfDescriptors(std::error_code error) {
    return error.value() == EMFILE || error.value() == ENFILE;
  }

  bool PushOutSlow() {
    const std::optional<uint64_t> id = room_.NextToEvict();
    if (!id || Clock::now() - newcomers_.at(*id).since < kProofIsSlow) return false;
    Refuse(*id, "no descriptor is left for another connection");
    return true;
  }

  void Welcome(tcp::socket socket) {
    std::error_code error;
    const tcp::endpoint peer = socket.remote_endpoint(error);
    if (error) return;  // the peer has already closed the connection
    const tcp::endpoint own = socket.local_endpoint(error);
    if (error) return;
    const std::string address = NumericAddress(peer);
    SetConnectionOptions(socket.native_handle());
    const uint64_t id = ++last_id_;
    std::shared_ptr<TlsStream> stream = BeginHandshake(
        std::move(socket), tls_, asio::ssl::stream_base::server, options_.handshake_timeout,
        [this, id](std::error_code failed) { OnHandshake(id, failed); });
    newcomers_.emplace(id, Newcomer{std::move(stream), address, NumericAddress(own), Clock::now()});
    if (const auto pushed_out = room_.Add(id, address))
      Refuse(*pushed_out, "too many unauthenticated connections are pending");
  }

  void OnHandshake(uint64_t id, std::error_code failed) {
    const auto known = newcomers_.find(id);
    if (known == newcomers_.end()) return;  // the connection was evicted during the handshake
    const std::shared_ptr<TlsStream> stream = known->second.stream;
    if (failed) return Refuse(id, WhyNoHandshake(*stream, failed));
    const std::optional<uint32_t> node = PeerNode(*stream, options_.job_id);
    if (!node || *node >= options_.num_nodes)
      return Refuse(id, "its certificate does not name a node of this job");
    auto& relays = relays_[*node];
    if (relays.size() >= options_.max_of_node)
      return Refuse(id, "node " + std::to_string(*node) + " has enough connections already");
    Result<SocketPair> pair = MakeSocketPair();
    if (!pair.ok()) return Refuse(id, pair.error().message);
    const Newcomer newcomer = Remove(id);
    const auto relay = std::make_shared<TlsRelay>(stream, std::move(pair->ours),
                                                  [&relays, id] { relays.erase(id); });
    relays.emplace(id, relay);
    relay->Start();
    on_node_({*node, newcomer.address, newcomer.own_address, relay->broke()},
             std::move(pair->theirs));
  }

  // Removes a pending connection and returns it. Precondition: `id` is pending.
  Newcomer Remove(uint64_t id) {
    const auto known = newcomers_.find(id);
    Newcomer newcomer = std::move(known->second);
    room_.Remove(id, newcomer.address);
    newcomers_.erase(known);
    return newcomer;
  }

  void Refuse(uint64_t id, const std::string& why) {
    const Newcomer newcomer = Remove(id);
    std::error_code ignored;  // ignored, because the connection is dropped even if close() fails
    newcomer.stream->socket().close(ignored);
    Notify("refused a connection from " + newcomer.address + ": " + why);
  }

  // Logs each line once, however often a peer causes it.
  void Notify(const std::string& line) {
    if (reported_.size() > kMaxRefusalsReported || !reported_.insert(line).second) return;
    on_refused_(reported_.size() <= kMaxRefusalsReported ? line
                                                         : "further refusals are not logged");
  }

  const AcceptorOptions options_;
  const OnNode on_node_;
  const OnRefused on_refused_;
  asio::ssl::context tls_;
  asio::io_context context_{1};
  tcp::acceptor listener_{context_};
  asio::steady_timer pause_{context_};
  int port_ = 0;
  uint64_t last_id_ = 0;
  PendingConnections room_;
  std::map<uint64_t, Newcomer> newcomers_;
  // Relays of the open connections, by node index and connection id.
  std::map<uint32_t, std::map<uint64_t, std::shared_ptr<TlsRelay>>> relays_;
  std::set<std::string> reported_;
  std::thread thread_;
};

Acceptor::Acceptor(std::unique_ptr<Loop> loop) : loop_(std::move(loop)) {}
Acceptor::~Acceptor() = default;

Result<std::unique_ptr<Acceptor>> Acceptor::Start(const AcceptorOptions& options,
                                                  const pb::Credentials& credentials,
                                                  OnNode on_node, OnRefused on_refused) {
  DSL_TRY_ASSIGN(asio::ssl::context tls, MakeTlsContext(credentials));
  auto loop =
      std::make_unique<Loop>(options, std::move(tls), std::move(on_node), std::move(on_refused));
  DSL_TRY(loop->Open());
  return std::unique_ptr<Acceptor>(new Acceptor(std::move(loop)));
}

int Acceptor::port() const { return loop_->port(); }

}  // namespace dslaunch
