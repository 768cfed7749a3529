#include "agent/flight/ras_client.h"

#include <algorithm>
#include <array>
#include <asio/buffer.hpp>
#include <asio/ip/tcp.hpp>
#include <asio/post.hpp>
#include <asio/read_until.hpp>
#include <asio/steady_timer.hpp>
#include <asio/write.hpp>
#include <charconv>
#include <cstdint>
#include <utility>

#include "agent/flight/ras_report.h"
#include "base/os/process_tree.h"

namespace dslaunch {
namespace {

// Commands for RAS, which answers each except the last with a line. NCCL before 2.28 refuses the
// third command, and then sends its status as text.
constexpr std::array kCommands = {"CLIENT PROTOCOL 2\n", "TIMEOUT 2\n", "SET FORMAT json\n",
                                  "VERBOSE STATUS\n"};
constexpr size_t kMaxLine = 4096;

}  // namespace

std::optional<RasAddress> ParseRasAddress(std::string_view value) {
  RasAddress address;
  if (value.empty()) return address;
  const size_t colon = value.rfind(':');
  if (colon == std::string_view::npos) return std::nullopt;
  std::string_view host = value.substr(0, colon);
  const std::string_view port = value.substr(colon + 1);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  constexpr int kMostPort = 65'535;
  const auto [end, status] = std::from_chars(port.data(), port.data() + port.size(), address.port);
  if (status != std::errc() || end != port.data() + port.size() || address.port <= 0 ||
      address.port > kMostPort)
    return std::nullopt;
  if (host != "localhost") {
    asio::error_code error;
    asio::ip::make_address(host, error);
    if (error) return std::nullopt;
    address.host = host;
  }
  return address;
}

std::optional<RasAddress> RasAddressOf(pid_t pid) {
  return ParseRasAddress(VariableOf(pid, "NCCL_RAS_ADDR").value_or(""));
}

struct RasClient::Session {
  Session(asio::io_context& loop, Done call) : socket(loop), timer(loop), done(std::move(call)) {}

  void Finish(std::string trouble) {
    if (!done) return;
    const Done call = std::exchange(done, nullptr);
    timer.cancel();
    socket.close();
    if (!trouble.empty()) status.clear();
    call(std::move(status), std::move(trouble));
  }

  asio::ip::tcp::socket socket;
  asio::steady_timer timer;
  Done done;  // callback of the request; empty once it was called
  size_t next_command = 0;
  std::string status;  // received bytes that were not processed yet
  std::array<char, 1 << 14> buffer = {};
};

void RasClient::Begin(const std::optional<RasAddress>& address, Done done) {
  auto session = std::make_shared<Session>(loop_, std::move(done));
  if (!address) {
    return asio::post(loop_, [session] {
      session->Finish("NCCL_RAS_ADDR is not localhost:PORT or a numeric address");
    });
  }
  session->timer.expires_after(kLimit);
  session->timer.async_wait([session](const asio::error_code& error) {
    if (!error) session->Finish("NCCL's RAS did not answer within 3 s");
  });
  session->socket.async_connect(
      {asio::ip::make_address(address->host), static_cast<uint16_t>(address->port)},
      [session](const asio::error_code& error) {
        if (error) return session->Finish("no process listens for NCCL's RAS: " + error.message());
        Ask(session);
      });
}

void RasClient::Ask(std::shared_ptr<Session> session) {
  const std::string_view command = kCommands[session->next_command++];
  asio::async_write(
      session->socket, asio::buffer(command), [session](const asio::error_code& error, size_t) {
        if (!session->done) return;
        if (error) return session->Finish("NCCL's RAS closed the connection");
        if (session->next_command == kCommands.size()) return ReadStatus(session);
        asio::async_read_until(session->socket, asio::dynamic_buffer(session->status, kMaxLine),
                               '\n', [session](const asio::error_code& failed, size_t line) {
                                 if (!session->done) return;
                                 if (failed)
                                   return session->Finish("NCCL's RAS closed the connection");
                                 session->status.erase(0, line);
                                 Ask(session);
                               });
      });
}

void RasClient::ReadStatus(std::shared_ptr<Session> session) {
  session->socket.async_read_some(
      asio::buffer(session->buffer), [session](const asio::error_code& error, size_t bytes) {
        if (!session->done) return;
        session->status.append(session->buffer.data(), bytes);
        if (session->status.size() > kMaxRasBytes)
          return session->Finish("the status of NCCL's RAS is too long");
        if (!error) return ReadStatus(session);
        session->Finish(session->status.empty() ? "NCCL's RAS sent no status" : "");
      });
}

}  // namespace dslaunch
