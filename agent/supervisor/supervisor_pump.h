// Copies one direction of the byte stream between the front end and the agent.
#pragma once

#include <asio/io_context.hpp>
#include <asio/posix/stream_descriptor.hpp>
#include <functional>
#include <memory>

#include "base/unique_fd.h"

namespace dslaunch {

// Copies bytes from a source to a sink until end of file. Holds at most one buffer: while the sink
// is blocked, the pump neither reads nor spins. At end of file, shuts down the sink's write side
// after the last byte. If the sink fails, closes it and drops further bytes, so that the source
// never blocks and its end is still detected. Single-threaded; must outlive the io_context's
// handlers.
class SupervisorPump {
 public:
  enum class Event {
    kSinkFailed,   // the sink failed; sent at most once, never after kSourceEnded
    kSourceEnded,  // end of file or an error at the source; the last event
  };
  using OnEvent = std::function<void(Event)>;

  // Makes the descriptors non-blocking. They may be pipes, sockets or duplicates of one socket.
  SupervisorPump(asio::io_context& io, UniqueFd source, UniqueFd sink);

  void Start(OnEvent on_event);

  // Makes the sink's reader read end of file now, and drops further bytes.
  void CloseSink();

  // Returns whether the source has ended and the sink has received all bytes or failed.
  bool ended() const { return ended_; }

 private:
  void Read();
  void Write(size_t bytes);

  asio::posix::stream_descriptor source_;
  asio::posix::stream_descriptor sink_;
  const std::unique_ptr<char[]> buffer_;
  OnEvent on_event_;
  bool ended_ = false;
};

}  // namespace dslaunch
