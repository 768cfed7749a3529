// Sends Protobuf messages over a stream socket. Each message is preceded by its length as a 4-byte
// little-endian number.
#pragma once

#include <google/protobuf/message_lite.h>

#include <asio/io_context.hpp>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/unique_fd.h"

namespace dslaunch {

// The maximum bytes of a message. A longer message is a protocol error.
inline constexpr size_t kMaxFrameBytes = size_t{16} << 20;
inline constexpr size_t kMaxQueuedBytes =
    size_t{64} << 20;  // maximum queued bytes for a peer; beyond it the socket is closed

// One end of a connected SOCK_STREAM socket on an io_context that a single thread runs. That thread
// calls all members except Send(), which any thread may call. The object may be destroyed inside
// its own callbacks.
class FramedSocket {
 public:
  // Receives the bytes of one message, which are valid during the call.
  using OnMessage = std::function<void(std::string_view)>;
  // Called once, after the last message, and never inside Send() or the constructor. `reason` is a
  // text for users.
  using OnClosed = std::function<void(const std::string& reason)>;

  // Reads messages from `fd` and passes them to `on_message`. `max_frame_bytes` limits the size of
  // a message.
  FramedSocket(asio::io_context& io, UniqueFd fd, OnMessage on_message, OnClosed on_closed,
               size_t max_frame_bytes = kMaxFrameBytes);
  // Closes the socket. No callback runs afterwards.
  ~FramedSocket();
  FramedSocket(const FramedSocket&) = delete;
  FramedSocket& operator=(const FramedSocket&) = delete;

  // Sends a message: immediately writes the bytes that the socket accepts, even while the
  // io_context is blocked, and queues the rest. Returns false if the socket is closed, the message
  // exceeds kMaxFrameBytes, or the queue exceeds kMaxQueuedBytes; the last two cases also close the
  // socket. Thread-safe.
  bool Send(const google::protobuf::MessageLite& message);

  // Returns the number of queued bytes that have not been written yet.
  size_t queued_bytes() const;

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace dslaunch
