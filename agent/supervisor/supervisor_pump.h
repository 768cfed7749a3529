// One direction of the byte stream between the front end and the agent.
#pragma once

#include <asio/io_context.hpp>
#include <asio/posix/stream_descriptor.hpp>
#include <functional>
#include <memory>

#include "base/unique_fd.h"

namespace dslaunch {

// Copies bytes until end of file. Holds at most one buffer: while the sink takes nothing, nothing
// is read, and nothing spins. At end of file the sink's write side is shut behind the last byte. A
// sink that fails is closed and what still comes is dropped, so that the source never blocks and
// its end is still seen. Single-threaded; must outlive the io_context's handlers.
class SupervisorPump {
 public:
  enum class Event {
    kSinkFailed,   // at most once, never after kSourceEnded
    kSourceEnded,  // end of file or an error: the last event
  };
  using OnEvent = std::function<void(Event)>;

  // The descriptors are made non-blocking; they may be pipes, sockets or duplicates of one socket.
  SupervisorPump(asio::io_context& io, UniqueFd source, UniqueFd sink);

  void Start(OnEvent on_event);

  // The sink's reader sees end of file now; what still comes is dropped.
  void CloseSink();

  // The source has ended, and the sink has all of it or failed.
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
