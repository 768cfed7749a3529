// A connection to an agent, carried as messages between two commands: one command's socket.
#pragma once

#include <array>
#include <asio/io_context.hpp>
#include <asio/local/stream_protocol.hpp>
#include <deque>
#include <functional>
#include <memory>
#include <string>

#include "base/unique_fd.h"
#include "proto/per_node.pb.h"

namespace dslaunch {

// Size of a message, in either direction.
inline constexpr size_t kMaxNodeMessageBytes = 128 << 10;

// Passes end of file on, in each direction separately. What it holds is bounded by HTTP/2's
// windows, because the bytes are gRPC's. On the loop's thread.
class CarriedStream : public std::enable_shared_from_this<CarriedStream> {
 public:
  using Send = std::function<void(const pb::NodeMessage&)>;

  // `local` is a connected stream socket.
  CarriedStream(asio::io_context& loop, UniqueFd local, Send send);

  void Start() { Read(); }

  // Write the bytes that the other side sent to the local socket, or end its input.
  void Deliver(std::string bytes);
  void DeliverEnd();

  // Sends nothing from now on. What was delivered is still written to the local socket, which is
  // shut down then.
  void Close();

 private:
  void Read();
  void Write();

  asio::local::stream_protocol::socket local_;
  Send send_;
  std::array<char, 64 << 10> chunk_;
  std::deque<std::string> queue_;  // front() is being written
  bool ends_ = false;              // end of file follows the queue
};

}  // namespace dslaunch
