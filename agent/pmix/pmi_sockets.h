// Manages the connections of a node's ranks to the node's PMI server. The supervisor makes one
// connection for each rank before it starts the rank, which inherits the connection as PMI_FD.
#pragma once

#include <asio/io_context.hpp>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/unique_fd.h"

namespace dslaunch {

// Reads lines from the ranks and sends lines to them. Used on the loop's thread.
class PmiSockets {
 public:
  // Callbacks for the ranks' lines and for ends of connections. They may call Send() and Close().
  struct Handlers {
    // Called with a line of a rank, without its newline.
    std::function<void(uint32_t local_rank, std::string_view line)> on_line;
    // Called once at the end of a connection, unless Close() was called.
    std::function<void(uint32_t local_rank)> on_closed;
  };

  // A rank that sends a line longer than `max_line_bytes` is disconnected.
  PmiSockets(asio::io_context& loop, size_t max_line_bytes, Handlers handlers);
  ~PmiSockets();

  // Adds the connection of a rank or, unless `is_connected`, the socket that listens for that
  // connection. Fails with kIo.
  Result<void> Add(uint32_t local_rank, UniqueFd fd, bool is_connected);
  // Sends a line to a rank. Disconnects the rank if it does not read its answers.
  void Send(uint32_t local_rank, const std::string& line);
  void Close(uint32_t local_rank);

 private:
  struct Rank;
  void Begin(uint32_t local_rank, const std::shared_ptr<Rank>& rank);
  void Read(uint32_t local_rank, const std::shared_ptr<Rank>& rank);
  void End(uint32_t local_rank);

  asio::io_context& loop_;
  const size_t max_line_bytes_;
  const Handlers handlers_;
  std::map<uint32_t, std::shared_ptr<Rank>> ranks_;
};

}  // namespace dslaunch
