#include "agent/pmix/pmi_sockets.h"

#include <asio/buffer.hpp>
#include <asio/local/stream_protocol.hpp>
#include <asio/post.hpp>
#include <asio/read_until.hpp>
#include <utility>

namespace dslaunch {

struct PmiSockets::Rank {
  explicit Rank(asio::io_context& loop) : listener(loop), connection(loop) {}

  asio::local::stream_protocol::acceptor listener;
  asio::local::stream_protocol::socket connection;
  std::string input;
};

PmiSockets::PmiSockets(asio::io_context& loop, size_t max_line_bytes, Handlers handlers)
    : loop_(loop), max_line_bytes_(max_line_bytes), handlers_(std::move(handlers)) {}

PmiSockets::~PmiSockets() = default;

Result<void> PmiSockets::Add(uint32_t local_rank, UniqueFd fd, bool is_connected) {
  const auto rank = std::make_shared<Rank>(loop_);
  const asio::local::stream_protocol protocol;
  std::error_code error;
  if (is_connected)
    rank->connection.assign(protocol, fd.get(), error);
  else
    rank->listener.assign(protocol, fd.get(), error);
  if (error) return Error{ExitCode::kIo, "take the socket of a rank: " + error.message()};
  static_cast<void>(fd.Release());  // the rank's object now owns the descriptor
  ranks_[local_rank] = rank;
  if (is_connected) {
    Begin(local_rank, rank);
    return {};
  }
  rank->listener.async_accept(rank->connection, [this, local_rank, rank](std::error_code failed) {
    std::error_code ignored;
    rank->listener.close(ignored);
    if (!failed) Begin(local_rank, rank);
  });
  return {};
}

void PmiSockets::Begin(uint32_t local_rank, const std::shared_ptr<Rank>& rank) {
  std::error_code ignored;
  rank->connection.non_blocking(true, ignored);
  Read(local_rank, rank);
}

void PmiSockets::Read(uint32_t local_rank, const std::shared_ptr<Rank>& rank) {
  asio::async_read_until(rank->connection, asio::dynamic_buffer(rank->input, max_line_bytes_ + 1),
                         '\n', [this, local_rank, rank](std::error_code error, size_t bytes) {
                           // Close() has closed the connection, so on_closed is not called.
                           if (!rank->connection.is_open()) return;
                           if (error) return End(local_rank);
                           const std::string line = rank->input.substr(0, bytes - 1);
                           rank->input.erase(0, bytes);
                           handlers_.on_line(local_rank, line);
                           if (rank->connection.is_open()) Read(local_rank, rank);
                         });
}

void PmiSockets::Send(uint32_t local_rank, const std::string& line) {
  const auto found = ranks_.find(local_rank);
  if (found == ranks_.end() || !found->second->connection.is_open()) return;
  std::error_code error;
  const size_t sent = found->second->connection.write_some(asio::buffer(line), error);
  if (!error && sent == line.size()) return;
  Close(local_rank);
  asio::post(loop_, [this, local_rank] { handlers_.on_closed(local_rank); });
}

void PmiSockets::Close(uint32_t local_rank) {
  const auto found = ranks_.find(local_rank);
  if (found == ranks_.end()) return;
  std::error_code ignored;
  found->second->listener.close(ignored);
  found->second->connection.close(ignored);
  ranks_.erase(found);
}

void PmiSockets::End(uint32_t local_rank) {
  Close(local_rank);
  handlers_.on_closed(local_rank);
}

}  // namespace dslaunch
