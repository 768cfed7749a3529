#include "agent/flight/ras_client.h"

#include <array>
#include <asio/buffer.hpp>
#include <asio/ip/tcp.hpp>
#include <asio/read_until.hpp>
#include <asio/steady_timer.hpp>
#include <asio/write.hpp>
#include <cstdint>
#include <utility>

#include "agent/flight/ras_report.h"

namespace dslaunch {
namespace {

// Each but the last is answered by a line. NCCL before 2.28 refuses the third, and sends text.
constexpr std::array kCommands = {"CLIENT PROTOCOL 2\n", "TIMEOUT 2\n", "SET FORMAT json\n",
                                  "VERBOSE STATUS\n"};
constexpr size_t kMaxLine = 4096;

}  // namespace

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
  Done done;  // empty once it was called
  size_t next_command = 0;
  std::string status;  // bytes that were read and not used
  std::array<char, 1 << 14> buffer = {};
};

void RasClient::Begin(Done done) {
  auto session = std::make_shared<Session>(loop_, std::move(done));
  session->timer.expires_after(kLimit);
  session->timer.async_wait([session](const asio::error_code& error) {
    if (!error) session->Finish("NCCL's RAS did not answer within 3 s");
  });
  session->socket.async_connect(
      {asio::ip::address_v4::loopback(), static_cast<uint16_t>(port_)},
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
