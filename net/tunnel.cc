#include "net/tunnel.h"

#include <asio/io_context.hpp>
#include <functional>
#include <thread>
#include <utility>

#include "base/os/socket_pair.h"
#include "net/connect_attempt.h"
#include "net/tls_relay.h"
#include "proto/wire/channel.h"

namespace dslaunch {
namespace {

// A TLS connection that runs on its own thread until either side ends it.
class Tunnel {
 public:
  explicit Tunnel(asio::ssl::context tls) : tls_(std::move(tls)) {}
  ~Tunnel() {
    loop_.stop();
    if (thread_.joinable()) thread_.join();
  }

  // Connects to one of the endpoints and returns its address. Fails with kTimedOut at the deadline.
  // Blocks. Call this once.
  Result<std::string> Find(const std::vector<std::string>& endpoints,
                           std::function<bool(TlsStream&)> is_rendezvous, Deadline deadline) {
    std::string found_at;
    ConnectSearch search(loop_, tls_, endpoints, std::move(is_rendezvous),
                         [&](std::shared_ptr<TlsStream> stream, const std::string& address) {
                           if (found_) return;
                           found_ = std::move(stream);
                           found_at = address;
                         });
    search.Start();
    while (!found_ && loop_.run_one_until(deadline.when()) > 0) {
    }
    const std::string tried = search.Describe();
    search.Stop();
    loop_.restart();
    loop_.poll();  // runs the handlers of the attempts that were stopped
    if (found_) return found_at;
    return Error{ExitCode::kTimedOut,
                 "cannot reach the rendezvous at " + tried +
                     "; check that a firewall lets the nodes reach each other"};
  }

  // Returns the decrypted end of the connection. Precondition: Find() has succeeded.
  Result<UniqueFd> Open() {
    DSL_TRY_ASSIGN(SocketPair pair, MakeSocketPair());
    const auto relay = std::make_shared<TlsRelay>(std::move(found_), std::move(pair.ours), nullptr);
    broke_ = relay->broke();
    relay->Start();
    loop_.restart();
    thread_ = std::thread([this] { loop_.run(); });
    return std::move(pair.theirs);
  }
  // Returns a flag that is set if the connection broke (TlsRelay::broke()). Precondition: Open()
  // has succeeded.
  std::shared_ptr<const std::atomic<bool>> broke() const { return broke_; }

 private:
  asio::ssl::context tls_;
  asio::io_context loop_{1};
  std::shared_ptr<TlsStream> found_;
  std::shared_ptr<const std::atomic<bool>> broke_;
  std::thread thread_;
};

}  // namespace

Result<RendezvousRoute> FindRendezvous(const std::vector<std::string>& endpoints,
                                       const std::string& job_id, uint32_t rendezvous_node,
                                       const pb::Credentials& credentials, Deadline deadline,
                                       milliseconds silent_after) {
  DSL_TRY_ASSIGN(asio::ssl::context tls, MakeTlsContext(credentials));
  struct Connection {
    explicit Connection(asio::ssl::context tls) : tunnel(std::move(tls)) {}
    Tunnel tunnel;
    std::shared_ptr<grpc::Channel> channel;  // declared last, so that it is destroyed first
  };
  const auto connection = std::make_shared<Connection>(std::move(tls));
  const auto is_rendezvous = [&](TlsStream& stream) {
    return PeerNode(stream, job_id) == rendezvous_node;
  };
  DSL_TRY_ASSIGN(std::string address, connection->tunnel.Find(endpoints, is_rendezvous, deadline));
  DSL_TRY_ASSIGN(UniqueFd plain, connection->tunnel.Open());
  connection->channel = ChannelFromFd("rendezvous", std::move(plain), silent_after);
  return RendezvousRoute{std::shared_ptr<grpc::Channel>(connection, connection->channel.get()),
                         std::move(address), connection->tunnel.broke()};
}

}  // namespace dslaunch
