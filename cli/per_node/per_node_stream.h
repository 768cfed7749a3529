// Transfers the bytes of a connection to an agent as messages between two commands. A CarriedStream
// is the socket at one of the commands.
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

// Largest size of a message, in either direction.
inline constexpr size_t kMaxNodeMessageBytes = 128 << 10;

// Transfers bytes between a local socket and messages, and forwards end of file in each direction
// separately. The queued bytes are bounded by the windows of HTTP/2, because the stream carries
// gRPC. Used on the loop's thread.
class CarriedStream : public std::enable_shared_from_this<CarriedStream> {
 public:
  using Send = std::function<void(const pb::NodeMessage&)>;

  // Prepares the transfer. `local` is a connected stream socket; `send` sends a message to the
  // other command.
  CarriedStream(asio::io_context& loop, UniqueFd local, Send send);

  void Start() { Read(); }

  // Writes bytes that the other command sent to the local socket, after the bytes of earlier calls.
  void Deliver(std::string bytes);

  // Ends the input of the local socket, after all delivered bytes.
  void DeliverEnd();

  // Sends no messages from now on. Bytes that were delivered are still written to the local socket,
  // which is then shut down.
  void Close();

 private:
  void Read();
  void Write();

  asio::local::stream_protocol::socket local_;
  Send send_;
  std::array<char, 64 << 10> chunk_;
  std::deque<std::string> queue_;  // bytes for the local socket; front() is being written
  bool ends_ = false;              // whether end of file follows the queue
};

}  // namespace dslaunch
