#include "net/tunnel.h"

#include <asio/io_context.hpp>
#include <asio/ip/tcp.hpp>
#include <asio/steady_timer.hpp>
#include <functional>
#include <thread>
#include <utility>

#include "base/backoff.h"
#include "base/socket_pair.h"
#include "net/addresses.h"
#include "net/connection.h"
#include "net/tls_relay.h"
#include "proto/wire/channel.h"

namespace dslaunch {
namespace {

using asio::ip::tcp;

constexpr milliseconds kFirstPause(50);
constexpr milliseconds kLongestPause(500);
// For connecting and proving; the other end gives a newcomer as long.
constexpr milliseconds kConnectLimit(5'000);

// The way to one endpoint, tried again until it is found or stopped. On the loop's thread.
class ConnectAttempt : public std::enable_shared_from_this<ConnectAttempt> {
 public:
  struct Search {
    asio::io_context& loop;
    asio::ssl::context& tls;
    std::function<bool(TlsStream&)> is_rendezvous;
    std::function<void(std::shared_ptr<TlsStream>, const std::string& address)> on_found;
  };

  ConnectAttempt(const Search& search, std::string endpoint)
      : search_(search), endpoint_(std::move(endpoint)), timer_(search.loop) {}

  void Start() {
    std::error_code error;
    const asio::ip::address address = asio::ip::make_address(HostOfEndpoint(endpoint_), error);
    if (error) {
      last_output_ = "no numeric address";
      return;
    }
    const auto stream = std::make_shared<TlsStream>(search_.loop, search_.tls);
    stream_ = stream;
    timer_.expires_after(kConnectLimit);
    timer_.async_wait([self = shared_from_this(), stream](std::error_code cancelled) {
      if (!cancelled && stream == self->stream_) self->Retry("no answer");
    });
    stream->lowest_layer().async_connect(
        {address, static_cast<uint16_t>(PortOfEndpoint(endpoint_))},
        [self = shared_from_this(), stream](std::error_code failed) {
          if (stream == self->stream_) self->OnConnected(failed);
        });
  }

  // Without effect once it is found.
  void Stop() {
    stopped_ = true;
    timer_.cancel();
    Drop();
  }

  // "10.0.0.1:4711 (Connection refused)"
  std::string Words() const { return endpoint_ + " (" + last_output_ + ")"; }

 private:
  void OnConnected(std::error_code failed) {
    if (failed) return Retry(failed.message());
    SetConnectionOptions(stream_->lowest_layer().native_handle());
    stream_->async_handshake(asio::ssl::stream_base::client,
                             [self = shared_from_this(), stream = stream_](std::error_code bad) {
                               if (stream == self->stream_) self->OnHandshake(bad);
                             });
  }

  void OnHandshake(std::error_code failed) {
    if (failed) return Retry(WhyNoHandshake(*stream_, failed));
    if (!search_.is_rendezvous(*stream_)) return Retry("it is another node of the job");
    timer_.cancel();
    search_.on_found(std::exchange(stream_, nullptr), HostOfEndpoint(endpoint_));
  }

  void Drop() {
    const std::shared_ptr<TlsStream> stream = std::exchange(stream_, nullptr);
    std::error_code ignored;
    if (stream) stream->lowest_layer().close(ignored);
  }

  void Retry(const std::string& why) {
    Drop();
    last_output_ = why;
    timer_.expires_after(PauseAfter(tries_++, kFirstPause, kLongestPause, RandomPart()));
    timer_.async_wait([self = shared_from_this()](std::error_code cancelled) {
      if (!cancelled && !self->stopped_) self->Start();
    });
  }

  const Search& search_;
  const std::string endpoint_;
  asio::steady_timer timer_;
  std::shared_ptr<TlsStream> stream_;  // what is under way; handlers of another are void
  bool stopped_ = false;
  int tries_ = 0;
  std::string last_output_ = "no answer";
};

// The thread that carries a connection, until either side ends it.
class Tunnel {
 public:
  explicit Tunnel(asio::ssl::context tls) : tls_(std::move(tls)) {}
  ~Tunnel() {
    loop_.stop();
    if (thread_.joinable()) thread_.join();
  }

  // Blocks; the endpoint's address. Once.
  Result<std::string> Find(const std::vector<std::string>& endpoints,
                           std::function<bool(TlsStream&)> is_rendezvous, Deadline deadline) {
    std::string found_at;
    const ConnectAttempt::Search search{
        loop_, tls_, std::move(is_rendezvous),
        [&](std::shared_ptr<TlsStream> stream, const std::string& address) {
          if (found_) return;
          found_ = std::move(stream);
          found_at = address;
        }};
    std::vector<std::shared_ptr<ConnectAttempt>> attempts;
    for (const std::string& endpoint : endpoints)
      attempts.push_back(std::make_shared<ConnectAttempt>(search, endpoint));
    for (const auto& attempt : attempts) attempt->Start();
    while (!found_ && loop_.run_one_until(deadline.when()) > 0) {
    }
    std::string list;
    for (const auto& attempt : attempts) {
      attempt->Stop();
      list += (list.empty() ? "" : ", ") + attempt->Words();
    }
    loop_.restart();
    loop_.poll();  // what was stopped lets go
    if (found_) return found_at;
    return Error{ExitCode::kTimedOut,
                 "cannot reach the rendezvous at " + list +
                     "; check that a firewall lets the nodes reach each other"};
  }

  // After Find: the connection's decrypted end.
  Result<UniqueFd> Open() {
    DSL_TRY_ASSIGN(SocketPair pair, MakeSocketPair());
    std::make_shared<TlsRelay>(std::move(found_), std::move(pair.ours), nullptr)->Start();
    loop_.restart();
    thread_ = std::thread([this] { loop_.run(); });
    return std::move(pair.theirs);
  }

 private:
  asio::ssl::context tls_;
  asio::io_context loop_{1};
  std::shared_ptr<TlsStream> found_;
  std::thread thread_;
};

}  // namespace

Result<RendezvousRoute> FindRendezvous(const std::vector<std::string>& endpoints,
                                       const std::string& job_id, uint32_t rendezvous_node,
                                       const pb::Credentials& credentials, Deadline deadline) {
  DSL_TRY_ASSIGN(asio::ssl::context tls, MakeTlsContext(credentials));
  struct Connection {
    explicit Connection(asio::ssl::context tls) : tunnel(std::move(tls)) {}
    Tunnel tunnel;
    std::shared_ptr<grpc::Channel> channel;  // goes first
  };
  const auto connection = std::make_shared<Connection>(std::move(tls));
  const auto is_rendezvous = [&](TlsStream& stream) {
    return PeerNode(stream, job_id) == rendezvous_node;
  };
  DSL_TRY_ASSIGN(std::string address, connection->tunnel.Find(endpoints, is_rendezvous, deadline));
  DSL_TRY_ASSIGN(UniqueFd plain, connection->tunnel.Open());
  connection->channel = ChannelFromFd("rendezvous", std::move(plain));
  return RendezvousRoute{std::shared_ptr<grpc::Channel>(connection, connection->channel.get()),
                         std::move(address)};
}

}  // namespace dslaunch
