// Forwards this process's stdin to the rank that reads it.
#pragma once

#include <asio/io_context.hpp>
#include <asio/posix/stream_descriptor.hpp>
#include <asio/steady_timer.hpp>
#include <cstdint>
#include <functional>
#include <string>

#include "base/unique_fd.h"

namespace dslaunch {

// Forwards stdin to a rank. Reads only while the rank accepts input, so that the remaining bytes
// are left to the next reader. Reads from a terminal only while this process is in its foreground.
// Does not change the descriptor's flags. Used on the loop's thread.
class StdinForwarder {
 public:
  // Sends input to the rank. `then` reports whether the rank's node has accepted the data; if not,
  // the same data is sent again.
  using Send =
      std::function<void(const std::string& data, bool end, std::function<void(bool taken)> then)>;

  // Prepares to forward from `fd`, which is borrowed. `on_line` is called when the user of a
  // terminal has pressed Enter.
  StdinForwarder(asio::io_context& loop, int fd, Send send, std::function<void()> on_line);

  // Starts to forward input, because the rank runs.
  void Start();
  // Stops forwarding input, because the rank has ended.
  void Stop();

 private:
  void Await();
  void After(std::chrono::milliseconds delay, void (StdinForwarder::*next)());
  void Read();
  void SendOn();

  const int fd_;
  const bool is_terminal_;
  const Send send_;
  const std::function<void()> on_line_;
  // Epoll descriptor that is readable when stdin is; closed for files.
  asio::posix::stream_descriptor readable_;
  asio::steady_timer timer_;
  bool running_ = false;
  bool busy_ = false;  // whether the forwarder is waiting or sending
  uint64_t runs_ = 0;  // number of the run; handlers of earlier runs do nothing
  bool ended_ = false;
  std::string data_;  // bytes that rank 0 has not accepted yet
};

// Reports once that `fd`, which is borrowed, has bytes to read, without reading them. Used on the
// loop's thread. The loop must outlive the object; `on_input` is not called after its destruction.
class StdinWatch {
 public:
  StdinWatch(asio::io_context& loop, int fd, std::function<void()> on_input);

 private:
  asio::posix::stream_descriptor readable_;
};

}  // namespace dslaunch
