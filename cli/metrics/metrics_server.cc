#include "cli/metrics/metrics_server.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <asio/read_until.hpp>
#include <asio/write.hpp>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

#include "base/os/put_file.h"
#include "base/text/sanitize.h"
#include "base/unique_fd.h"
#include "cli/metrics/metrics_request.h"

namespace dslaunch {
namespace {

// Limit of open connections; further connections are closed at once.
constexpr size_t kMostConnections = 16;
constexpr std::chrono::seconds kPatience(5);  // time limit for a request and its answer
constexpr size_t kLeastTokenBytes = 16;
constexpr size_t kMostTokenBytes = 512;
constexpr char kTokenOption[] = "--metrics_token_file ";

Error Bad(const std::string& path, const std::string& what) {
  return {ExitCode::kBadInput, kTokenOption + Truncate(path) + ": " + what};
}

// Returns whether no process listens on the socket any more.
bool IsStale(const sockaddr_un& address) {
  const UniqueFd probe(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  return ::connect(probe.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 &&
         errno == ECONNREFUSED;
}

}  // namespace

Result<std::string> ReadMetricsToken(const std::string& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat status {};
  if (!fd || ::fstat(fd.get(), &status) != 0) return Bad(path, std::strerror(errno));
  if (!S_ISREG(status.st_mode)) return Bad(path, "it is not a file");
  if (status.st_uid != ::geteuid()) return Bad(path, "it is another user's");
  if ((status.st_mode & 077) != 0)
    return Bad(path, "other users may read it, so it is not secret; chmod 600 it");
  std::string token(kMostTokenBytes + 2, '\0');
  const ssize_t size = ::read(fd.get(), token.data(), token.size());
  if (size < 0) return Bad(path, std::strerror(errno));
  token.resize(static_cast<size_t>(size));
  token.resize(token.find_last_not_of(" \t\r\n") + 1);
  if (token.size() < kLeastTokenBytes || token.size() > kMostTokenBytes) {
    return Bad(path, "a token has " + std::to_string(kLeastTokenBytes) + " to " +
                         std::to_string(kMostTokenBytes) +
                         " bytes; make one with: openssl rand "
                         "-hex 16");
  }
  if (token.find_first_of(" \t\r\n") != std::string::npos)
    return Bad(path, "it has more than one word");
  return token;
}

// A connection with one request and its answer. Keeps itself alive until both are complete or its
// time limit has passed.
template <class Socket>
class MetricsServer::Connection : public std::enable_shared_from_this<Connection<Socket>> {
 public:
  Connection(Socket socket, Render render, std::string token, std::shared_ptr<size_t> open)
      : socket_(std::move(socket)),
        timer_(socket_.get_executor()),
        render_(std::move(render)),
        token_(std::move(token)),
        open_(std::move(open)) {
    ++*open_;
  }
  ~Connection() { --*open_; }

  void Start() {
    timer_.expires_after(kPatience);
    timer_.async_wait([self = this->shared_from_this()](const asio::error_code& error) {
      asio::error_code ignored;
      if (!error) self->socket_.close(ignored);
    });
    Read();
  }

 private:
  void Read() {
    socket_.async_read_some(asio::buffer(buffer_), [self = this->shared_from_this()](
                                                       const asio::error_code& error, size_t size) {
      if (error) return self->End();
      self->head_.append(self->buffer_.data(), size);
      if (IsWholeRequest(self->head_)) return self->Answer();
      if (self->head_.size() >= kMaxRequestBytes) return self->End();
      self->Read();
    });
  }

  void Answer() {
    const MetricsAnswer answer = AnswerRequest(head_, token_);
    response_ = ResponseText(answer, answer.status == 200 ? render_(answer.format) : "");
    asio::async_write(socket_, asio::buffer(response_),
                      [self = this->shared_from_this()](const asio::error_code&, size_t) {
                        asio::error_code ignored;
                        self->socket_.shutdown(Socket::shutdown_both, ignored);
                        self->End();
                      });
  }

  void End() {
    asio::error_code ignored;
    socket_.close(ignored);
    timer_.cancel();
  }

  Socket socket_;
  asio::steady_timer timer_;
  const Render render_;
  const std::string token_;
  const std::shared_ptr<size_t> open_;
  std::array<char, 1024> buffer_{};
  std::string head_;
  std::string response_;
};

MetricsServer::MetricsServer(asio::io_context& loop, Render render,
                             std::function<void(const std::string&)> complain)
    : render_(std::move(render)),
      complain_(std::move(complain)),
      file_timer_(loop),
      local_(loop),
      tcp_(loop) {}

MetricsServer::~MetricsServer() {
  if (!socket_path_.empty()) ::unlink(socket_path_.c_str());
  if (!file_.empty()) ::unlink(file_.c_str());  // a stale file would look like a running job
}

Result<void> MetricsServer::Open(const MetricsPlaces& places) {
  if (!places.socket.empty()) DSL_TRY(OpenSocket(places.socket));
  if (places.port != 0) {
    DSL_TRY(OpenPort(places.port));
    Accept(tcp_, places.token);
  }
  if (places.file.empty()) return {};
  file_ = places.file;
  if (const Result<void> written = WriteFile(); !written.ok()) {
    file_.clear();
    return Error{written.error().code, "--metrics_file: " + written.error().message};
  }
  ArmFile();
  return {};
}

Result<void> MetricsServer::OpenSocket(const std::string& path) {
  const std::string where = "--metrics_socket " + Truncate(path) + ": ";
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) {
    return Error{ExitCode::kUsage, where + "a socket's path has at most " +
                                       std::to_string(sizeof address.sun_path - 1) + " bytes"};
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  struct stat status {};
  if (::lstat(path.c_str(), &status) == 0) {
    if (!S_ISSOCK(status.st_mode) || status.st_uid != ::geteuid() || !IsStale(address))
      return Error{ExitCode::kUsage, where + "it exists; remove it, or take another path"};
    ::unlink(path.c_str());
  }
  UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  // Makes the socket inaccessible to other users from its creation.
  const mode_t before = ::umask(0177);
  const int bound =
      ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address);
  const int error_number = errno;
  ::umask(before);
  if (bound != 0) return Error{ExitCode::kIo, where + std::strerror(error_number)};
  socket_path_ = path;
  if (::listen(socket.get(), SOMAXCONN) != 0)
    return Error{ExitCode::kIo, where + std::strerror(errno)};
  local_.assign(asio::local::stream_protocol(), socket.Release());
  Accept(local_, "");
  return {};
}

Result<void> MetricsServer::OpenPort(int port) {
  const asio::ip::tcp::endpoint endpoint(asio::ip::address_v4::loopback(),
                                         static_cast<uint16_t>(port));
  asio::error_code error;
  tcp_.open(endpoint.protocol(), error);
  if (!error) tcp_.set_option(asio::socket_base::reuse_address(true), error);
  if (!error) tcp_.bind(endpoint, error);
  if (!error) tcp_.listen(asio::socket_base::max_listen_connections, error);
  if (!error) return {};
  return Error{ExitCode::kUnavailable,
               "--metrics_port " + std::to_string(port) + ": " + error.message()};
}

template <class Acceptor>
void MetricsServer::Accept(Acceptor& acceptor, std::string token) {
  using Socket = typename Acceptor::protocol_type::socket;
  acceptor.async_accept([this, &acceptor, token](const asio::error_code& error, Socket socket) {
    if (error == asio::error::operation_aborted) return;
    if (!error && *open_ < kMostConnections)
      std::make_shared<Connection<Socket>>(std::move(socket), render_, token, open_)->Start();
    Accept(acceptor, token);
  });
}

Result<void> MetricsServer::WriteFile() {
  return PutFile(file_, render_(MetricsFormat::kPrometheus), /*overwrite=*/true);
}

void MetricsServer::ArmFile() {
  file_timer_.expires_after(std::chrono::seconds(kMetricsFileIntervalS));
  file_timer_.async_wait([this](const asio::error_code& error) {
    if (error) return;
    const Result<void> written = WriteFile();
    if (!written.ok() && !std::exchange(complained_, true))
      complain_("metrics are not written: " + written.error().message);
    ArmFile();
  });
}

}  // namespace dslaunch
