#include "agent/pmix/pmi_sockets.h"

#include <sys/un.h>
#include <unistd.h>

#include <asio/buffer.hpp>
#include <asio/local/stream_protocol.hpp>
#include <asio/post.hpp>
#include <asio/read_until.hpp>
#include <utility>

namespace dslaunch {

struct PmiSockets::Rank {
  explicit Rank(asio::io_context& loop) : listener(loop), connection(loop) {}

  std::string path;
  asio::local::stream_protocol::acceptor listener;
  asio::local::stream_protocol::socket connection;
  std::string input;
};

PmiSockets::PmiSockets(asio::io_context& loop, size_t max_line_bytes, Handlers handlers)
    : loop_(loop), max_line_bytes_(max_line_bytes), handlers_(std::move(handlers)) {}

PmiSockets::~PmiSockets() = default;

Result<std::string> PmiSockets::Listen(const std::string& folder, uint32_t local_rank) {
  const auto rank = std::make_shared<Rank>(loop_);
  rank->path = folder + "/pmi." + std::to_string(local_rank);
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
  ranks_[local_rank] = rank;
  rank->listener.async_accept(rank->connection, [this, local_rank, rank](std::error_code failed) {
    std::error_code ignored;
    rank->listener.close(ignored);
    ::unlink(rank->path.c_str());
    if (failed) return;
    rank->connection.non_blocking(true, ignored);
    Read(local_rank, rank);
  });
  return rank->path;
}

void PmiSockets::Read(uint32_t local_rank, const std::shared_ptr<Rank>& rank) {
  asio::async_read_until(rank->connection, asio::dynamic_buffer(rank->input, max_line_bytes_ + 1),
                         '\n', [this, local_rank, rank](std::error_code error, size_t bytes) {
                           if (!rank->connection.is_open()) return;  // closed here
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
