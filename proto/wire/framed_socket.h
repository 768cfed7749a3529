// Protobuf messages over a stream socket: a 4-byte little-endian length, then the bytes.
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

inline constexpr size_t kMaxFrameBytes = size_t{16} << 20;  // a longer message is a protocol error
inline constexpr size_t kMaxQueuedBytes = size_t{64}
                                          << 20;  // a reader this far behind counts as gone

// One end of a connected SOCK_STREAM socket, on an io_context that one thread runs; all members but
// Send are called from that thread. May be destroyed inside its own callbacks.
class FramedSocket {
 public:
  // The bytes of one message, valid during the call.
  using OnMessage = std::function<void(std::string_view)>;
  // Once, never from inside Send or the constructor; nothing arrives afterwards. `reason` is for
  // people.
  using OnClosed = std::function<void(const std::string& reason)>;

  // `max_frame_bytes`: of a message that arrives.
  FramedSocket(asio::io_context& io, UniqueFd fd, OnMessage on_message, OnClosed on_closed,
               size_t max_frame_bytes = kMaxFrameBytes);
  // Closes the socket; no callback is called any more.
  ~FramedSocket();
  FramedSocket(const FramedSocket&) = delete;
  FramedSocket& operator=(const FramedSocket&) = delete;

  // Thread-safe. Writes at once what the socket takes, also while the io_context stands still, and
  // queues the rest. False when the socket is closed, the
  // message is above kMaxFrameBytes, or the queue above kMaxQueuedBytes; the last two close it.
  bool Send(const google::protobuf::MessageLite& message);

  // Bytes that wait for the reader.
  size_t queued_bytes() const;

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace dslaunch
