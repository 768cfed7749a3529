#include "cli/call_back/call_back_server.h"

#include <sys/socket.h>

#include <algorithm>
#include <asio/buffer.hpp>
#include <asio/executor_work_guard.hpp>
#include <asio/io_context.hpp>
#include <asio/ip/tcp.hpp>
#include <asio/ip/v6_only.hpp>
#include <asio/read_until.hpp>
#include <asio/steady_timer.hpp>
#include <asio/write.hpp>
#include <list>
#include <set>
#include <thread>
#include <utility>

#include "base/backoff.h"
#include "base/mutex.h"
#include "base/os/proc_text.h"
#include "base/os/socket_pair.h"
#include "net/addresses.h"
#include "net/connection.h"
#include "net/pinned_tls.h"
#include "net/tls.h"
#include "net/tls_relay.h"

namespace dslaunch {
namespace {

using asio::ip::tcp;

// Limit for the TLS handshake, or for reading the ticket.
constexpr milliseconds kProveWithin(5'000);
constexpr milliseconds kCopyWithin(120'000);  // the agent's file to one node
// Pause before the next accept after no descriptor was free.
constexpr milliseconds kAcceptAgain(1'000);
constexpr size_t kMaxEndpoints = 8;
constexpr unsigned char kTlsHandshake = 0x16;  // first byte that a TLS client sends
constexpr size_t kMaxTicketBytes = 256;

std::string TextOf(const asio::ip::address& address) {
  if (address.is_v6() && address.to_v6().is_v4_mapped())
    return asio::ip::make_address_v4(asio::ip::v4_mapped, address.to_v6()).to_string();
  return address.to_string();
}

// Listens for IPv4 and IPv6 if the kernel supports both. Port 0 means any free port.
std::error_code ListenAt(tcp::acceptor& acceptor, uint16_t port) {
  std::error_code failed;
  acceptor.open(tcp::v6(), failed);
  if (!failed) acceptor.set_option(asio::ip::v6_only(false), failed);
  if (!failed) acceptor.bind({tcp::v6(), port}, failed);
  if (failed && failed != asio::error::address_in_use) {
    std::error_code ignored;
    acceptor.close(ignored);
    acceptor.open(tcp::v4(), failed);
    if (!failed) acceptor.bind({tcp::v4(), port}, failed);
  }
  if (!failed) acceptor.listen(asio::socket_base::max_listen_connections, failed);
  if (!failed) acceptor.non_blocking(true, failed);
  return failed;
}

// Listens at a port of the range. Tries ports from a random one on, so that jobs that start
// together rarely try the same port.
std::error_code Listen(tcp::acceptor& acceptor, const PortRange& ports) {
  if (ports.first == 0) return ListenAt(acceptor, 0);
  const uint32_t count = ports.last - ports.first + 1u;
  const uint32_t start = static_cast<uint32_t>(RandomPart() * count);
  std::error_code failed;
  for (uint32_t i = 0; i < count; ++i) {
    std::error_code ignored;
    acceptor.close(ignored);
    failed = ListenAt(acceptor, static_cast<uint16_t>(ports.first + (start + i) % count));
    if (failed != asio::error::address_in_use) break;
  }
  return failed;
}

}  // namespace

class CallBackServer::Loop {
 public:
  Loop(Options options, PinnedKey key, asio::ssl::context tls)
      : options_(std::move(options)), key_(std::move(key)), tls_(std::move(tls)) {}

  ~Loop() {
    context_.stop();
    if (thread_.joinable()) thread_.join();
  }

  Result<void> Start() {
    if (const std::error_code failed = Listen(acceptor_, options_.ports)) {
      const PortRange& ports = options_.ports;
      return Error{ExitCode::kUnavailable,
                   "cannot open a port for the agents" +
                       (ports.first == 0 ? ""
                                         : " in " + std::string(ports.set_by) + ", " +
                                               std::to_string(ports.first) + " to " +
                                               std::to_string(ports.last)) +
                       ": " + failed.message()};
    }
    Accept();
    thread_ = std::thread([this] { context_.run(); });
    return {};
  }

  const std::string& pin() const { return key_.pin; }

  std::vector<std::string> endpoints() const {
    std::vector<std::string> addresses = ReachableAddresses(options_.network_interface);
    if (addresses.empty()) addresses = ReachableAddresses();
    if (addresses.empty()) addresses = {"127.0.0.1"};
    addresses.resize(std::min(addresses.size(), kMaxEndpoints));
    std::error_code ignored;
    for (std::string& address : addresses)
      address += ":" + std::to_string(acceptor_.local_endpoint(ignored).port());
    return addresses;
  }

  Result<Caller> Await(const std::string& pin, Deadline deadline) {
    const MutexLock lock(mutex_);
    const auto find = [&]() DSL_REQUIRES(mutex_) {
      return std::ranges::find(unclaimed_, pin, &Unclaimed::pin);
    };
    changed_.WaitUntil(mutex_, deadline.when(), [&]() DSL_REQUIRES(mutex_) {
      return find() != unclaimed_.end() || forgotten_.contains(pin);
    });
    const bool has_ended = forgotten_.erase(pin) > 0;
    const auto found = find();
    if (found == unclaimed_.end()) {
      return Error{ExitCode::kUnavailable, has_ended
                                               ? "it ended before it connected to this machine"
                                               : "it did not connect to this machine in time"};
    }
    Caller caller = std::move(found->caller);
    unclaimed_.erase(found);
    return caller;
  }

  void Forget(const std::string& pin) {
    const MutexLock lock(mutex_);
    forgotten_.insert(pin);
    changed_.NotifyAll();
  }

 private:
  struct Unclaimed {
    std::string pin;
    Caller caller;
  };
  // A connection that was accepted and whose first bytes have not been read.
  struct Newcomer {
    Newcomer(tcp::socket connected, milliseconds limit)
        : socket(std::move(connected)), timer(socket.get_executor(), limit) {}
    tcp::socket socket;
    asio::steady_timer timer;
    asio::streambuf line{kMaxTicketBytes};
  };

  void Accept() {
    acceptor_.async_accept([this](std::error_code failed, tcp::socket socket) {
      if (failed == asio::error::operation_aborted) return;
      if (failed) {
        accept_timer_.expires_after(kAcceptAgain);
        return accept_timer_.async_wait([this](std::error_code) { Accept(); });
      }
      OnConnection(std::move(socket));
      Accept();
    });
  }

  void OnConnection(tcp::socket socket) {
    if (num_newcomers_ >= options_.max_unclaimed) return;  // too many wait, so this one is closed
    SetConnectionOptions(socket.native_handle());
    const std::shared_ptr<Newcomer> newcomer(new Newcomer(std::move(socket), kProveWithin),
                                             [this](Newcomer* gone) {
                                               --num_newcomers_;
                                               delete gone;
                                             });
    ++num_newcomers_;
    LimitTime(newcomer);
    newcomer->socket.async_wait(tcp::socket::wait_read, [this, newcomer](std::error_code failed) {
      unsigned char first = 0;
      if (failed || recv(newcomer->socket.native_handle(), &first, 1, MSG_PEEK) != 1) return;
      if (first == kTlsHandshake) return StartTls(newcomer);
      asio::async_read_until(newcomer->socket, newcomer->line, '\n',
                             [this, newcomer](std::error_code cut, size_t size) {
                               const auto bytes = newcomer->line.data();
                               const std::string line(asio::buffers_begin(bytes),
                                                      asio::buffers_end(bytes));
                               if (cut || size == 0) return;
                               const auto file = options_.files.find(line.substr(0, size - 1));
                               if (file != options_.files.end()) SendFile(newcomer, file->second);
                             });
    });
  }

  static void LimitTime(const std::shared_ptr<Newcomer>& newcomer) {
    newcomer->timer.async_wait([held = std::weak_ptr(newcomer)](std::error_code cancelled) {
      const std::shared_ptr<Newcomer> late = held.lock();
      std::error_code ignored;
      if (!cancelled && late) late->socket.close(ignored);
    });
  }

  void StartTls(const std::shared_ptr<Newcomer>& newcomer) {
    std::error_code unknown;
    const std::string address = TextOf(newcomer->socket.remote_endpoint(unknown).address());
    const std::string own_address = TextOf(newcomer->socket.local_endpoint(unknown).address());
    newcomer->timer.cancel();
    const auto stream = std::make_shared<std::shared_ptr<TlsStream>>();
    *stream = BeginHandshake(
        std::move(newcomer->socket), tls_, asio::ssl::stream_base::server, kProveWithin,
        [this, newcomer, stream, address, own_address](std::error_code failed) {
          const std::shared_ptr<TlsStream> secure = std::exchange(*stream, nullptr);
          if (!failed) Keep(secure, address, own_address);
        });
  }

  void Keep(const std::shared_ptr<TlsStream>& secure, const std::string& address,
            const std::string& own_address) {
    Result<SocketPair> pair = MakeSocketPair();
    const std::string pin = PeerPin(*secure);
    if (!pair.ok() || !IsPin(pin)) return;
    std::make_shared<TlsRelay>(secure, std::move(pair->ours), nullptr)->Start();
    const MutexLock lock(mutex_);
    unclaimed_.push_back({pin, {std::move(pair->theirs), address, own_address}});
    if (unclaimed_.size() > options_.max_unclaimed) unclaimed_.pop_front();
    changed_.NotifyAll();
  }

  void SendFile(const std::shared_ptr<Newcomer>& newcomer, const std::string& path) {
    std::shared_ptr<const std::string>& known = contents_[path];
    // If the file cannot be read, an empty file is sent, which the node refuses because of its
    // digest.
    if (!known) known = std::make_shared<const std::string>(ReadWhole(path).value_or(""));
    newcomer->timer.expires_after(kCopyWithin);
    LimitTime(newcomer);
    asio::async_write(newcomer->socket, asio::buffer(*known),
                      [newcomer, content = known](std::error_code, size_t) {
                        std::error_code ignored;
                        newcomer->socket.shutdown(tcp::socket::shutdown_send, ignored);
                        newcomer->timer.cancel();
                      });
  }

  const Options options_;
  const PinnedKey key_;
  asio::ssl::context tls_;
  size_t num_newcomers_ = 0;
  // Contents of requested files, by path.
  std::map<std::string, std::shared_ptr<const std::string>> contents_;
  Mutex mutex_;
  CondVar changed_;
  std::list<Unclaimed> unclaimed_ DSL_GUARDED_BY(mutex_);
  std::set<std::string> forgotten_ DSL_GUARDED_BY(mutex_);  // public keys of agents that have ended
  asio::io_context context_{1};
  tcp::acceptor acceptor_{context_};
  asio::steady_timer accept_timer_{context_};
  std::thread thread_;
};

CallBackServer::CallBackServer(std::unique_ptr<Loop> loop) : loop_(std::move(loop)) {}
CallBackServer::~CallBackServer() = default;

Result<std::unique_ptr<CallBackServer>> CallBackServer::Start(Options options) {
  DSL_TRY_ASSIGN(PinnedKey key, MakePinnedKey());
  DSL_TRY_ASSIGN(asio::ssl::context tls, MakePinnedContext(key, ""));
  auto loop = std::make_unique<Loop>(std::move(options), std::move(key), std::move(tls));
  DSL_TRY(loop->Start());
  return std::unique_ptr<CallBackServer>(new CallBackServer(std::move(loop)));
}

const std::string& CallBackServer::pin() const { return loop_->pin(); }
std::vector<std::string> CallBackServer::endpoints() const { return loop_->endpoints(); }
Result<CallBackServer::Caller> CallBackServer::Await(const std::string& pin, Deadline deadline) {
  return loop_->Await(pin, deadline);
}

void CallBackServer::Forget(const std::string& pin) { loop_->Forget(pin); }

}  // namespace dslaunch
