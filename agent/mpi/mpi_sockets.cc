#include "agent/mpi/mpi_sockets.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <asio/buffer.hpp>
#include <asio/local/stream_protocol.hpp>
#include <cerrno>
#include <optional>
#include <set>
#include <utility>

#include "agent/host/port_listeners.h"

namespace dslaunch {
namespace {

constexpr size_t kMaxFirstBytes = 4096;

}  // namespace

struct MpiSockets::Rank {
  explicit Rank(asio::io_context& loop) : listener(loop), connection(loop) {}

  std::string path;
  // Listening socket; closed once the rank has connected.
  asio::local::stream_protocol::acceptor listener;
  asio::local::stream_protocol::socket connection;
};

struct MpiSockets::PmixClient {
  explicit PmixClient(asio::io_context& loop) : socket(loop) {}

  asio::ip::tcp::socket socket;
  std::array<char, 1024> bytes;
  std::string first;  // first bytes that the client has sent
};

Result<std::shared_ptr<MpiSockets>> MpiSockets::Open(asio::io_context& loop,
                                                     const std::string& folder, uint32_t ranks,
                                                     PmixPort pmix,
                                                     std::function<void(MpiProtocol)> on_use) {
  std::shared_ptr<MpiSockets> sockets(new MpiSockets(loop, pmix, std::move(on_use)));
  if (pmix.is_open) DSL_TRY(sockets->OpenPmix());
  for (uint32_t i = 0; i < ranks; ++i) DSL_TRY(sockets->OpenPmi(folder));
  return sockets;
}

MpiSockets::MpiSockets(asio::io_context& loop, PmixPort pmix,
                       std::function<void(MpiProtocol)> on_use)
    : loop_(loop), on_use_(std::move(on_use)), word_(std::move(pmix.word)), pmix_(loop) {}

Result<void> MpiSockets::OpenPmix() {
  std::error_code error;
  const asio::ip::tcp::endpoint loopback(asio::ip::address_v4::loopback(), 0);
  pmix_.open(loopback.protocol(), error);
  if (!error) pmix_.bind(loopback, error);
  if (!error) pmix_.listen(SOMAXCONN, error);
  if (error)
    return Error{ExitCode::kIo,
                 "listen on 127.0.0.1 for ranks that speak PMIx: " + error.message()};
  pmix_.native_non_blocking(true, error);
  AwaitPmix();
  return {};
}

void MpiSockets::AwaitPmix() {
  pmix_.async_wait(pmix_.wait_read, [weak = weak_from_this()](std::error_code cancelled) {
    const auto self = weak.lock();
    if (self && !cancelled && self->pmix_.is_open()) self->OnPmixConnection();
  });
}

void MpiSockets::OnPmixConnection() {
  const std::optional<std::set<uid_t>> users = ConnectedTo(pmix_port());
  const bool may_be_rank = !users || users->contains(::geteuid()) || users->contains(0);
  if (may_be_rank && word_.empty()) return OnUse(MpiProtocol::kPmix);
  const auto client = std::make_shared<PmixClient>(loop_);
  std::error_code error;
  pmix_.accept(client->socket, error);
  if (!error && may_be_rank) AwaitRequest(client);
  AwaitPmix();
}

void MpiSockets::AwaitRequest(const std::shared_ptr<PmixClient>& client) {
  client->socket.async_read_some(asio::buffer(client->bytes),
                                 [weak = weak_from_this(), client](std::error_code over, size_t n) {
                                   const auto self = weak.lock();
                                   if (over || !self) return;
                                   client->first.append(client->bytes.data(), n);
                                   if (client->first.find(self->word_) != std::string::npos)
                                     self->OnUse(MpiProtocol::kPmix);
                                   else if (client->first.size() < kMaxFirstBytes)
                                     self->AwaitRequest(client);
                                 });
}

Result<void> MpiSockets::OpenPmi(const std::string& folder) {
  const auto rank = std::make_shared<Rank>(loop_);
  rank->path = folder + "/pmi." + std::to_string(ranks_.size());
  std::error_code error;
  if (rank->path.size() >= sizeof(sockaddr_un::sun_path))
    error = std::make_error_code(std::errc::filename_too_long);
  const asio::local::stream_protocol::endpoint place =
      error ? asio::local::stream_protocol::endpoint()
            : asio::local::stream_protocol::endpoint(rank->path);
  if (!error) rank->listener.open(place.protocol(), error);
  if (!error) rank->listener.bind(place, error);
  if (!error) rank->listener.listen(1, error);
  if (error)
    return Error{ExitCode::kIo, "listen at " + rank->path + " for a rank: " + error.message() +
                                    "; TMPDIR chooses another folder"};
  ranks_.push_back(rank);
  rank->listener.native_non_blocking(true, error);
  AwaitConnection(rank);
  return {};
}

// A connection that asio had already accepted for a pending handler would be lost if a server gets
// the listener meanwhile. The socket is therefore only watched, and accepted when the handler runs.
void MpiSockets::AwaitConnection(const std::shared_ptr<Rank>& rank) {
  rank->listener.async_wait(rank->listener.wait_read,
                            [weak = weak_from_this(), rank](std::error_code failed) {
                              const auto self = weak.lock();
                              if (failed || !self || !rank->listener.is_open()) return;
                              std::error_code error;
                              rank->listener.accept(rank->connection, error);
                              if (error) return self->AwaitConnection(rank);
                              rank->listener.close(error);
                              ::unlink(rank->path.c_str());
                              self->AwaitFirstByte(rank);
                            });
}

// Every rank has PMI_FD from its start, but a program without MPI never writes to it, so the first
// byte shows that the rank uses MPI.
void MpiSockets::AwaitFirstByte(const std::shared_ptr<Rank>& rank) {
  rank->connection.async_wait(
      rank->connection.wait_read, [weak = weak_from_this(), rank](std::error_code failed) {
        const auto self = weak.lock();
        if (failed || !self || !rank->connection.is_open()) return;
        char first = 0;
        const ssize_t got =
            ::recv(rank->connection.native_handle(), &first, 1, MSG_PEEK | MSG_DONTWAIT);
        if (got > 0) return self->OnUse(MpiProtocol::kPmi);
        if (got < 0 && (errno == EAGAIN || errno == EINTR)) return self->AwaitFirstByte(rank);
        std::error_code ignored;
        rank->connection.close(ignored);
      });
}

void MpiSockets::OnUse(MpiProtocol protocol) {
  if (const auto on_use = std::exchange(on_use_, nullptr)) on_use(protocol);
}

int MpiSockets::pmix_port() const {
  std::error_code error;
  return pmix_.is_open() ? pmix_.local_endpoint(error).port() : 0;
}

const std::string& MpiSockets::pmi_path(uint32_t local_rank) const {
  return ranks_.at(local_rank)->path;
}

MpiSockets::Released MpiSockets::Release() {
  on_use_ = nullptr;
  Released released;
  std::error_code ignored;
  if (pmix_.is_open()) released.pmix_listener.Reset(pmix_.release(ignored));
  for (const auto& rank : ranks_) {
    PmiSocket& socket = released.pmi.emplace_back();
    socket.is_connected = !rank->listener.is_open();
    if (!socket.is_connected)
      socket.fd.Reset(rank->listener.release(ignored));
    else if (rank->connection.is_open())
      socket.fd.Reset(rank->connection.release(ignored));
  }
  return released;
}

}  // namespace dslaunch
