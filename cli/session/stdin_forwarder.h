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

// Reads only while the rank takes it, so that what is left over stays for whoever reads next, and
// of a terminal only in its foreground. The descriptor's flags stay as they are. On the loop's
// thread.
class StdinForwarder {
 public:
  // `then` reports whether the rank's node has accepted it; else the same is sent again.
  using Send =
      std::function<void(const std::string& data, bool end, std::function<void(bool taken)> then)>;

  // `fd` is borrowed. `on_line` is called when the user of a terminal has pressed Enter.
  StdinForwarder(asio::io_context& loop, int fd, Send send, std::function<void()> on_line);

  // The rank runs: from now on it gets what is read.
  void Start();
  // It has ended.
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
  asio::posix::stream_descriptor readable_;  // an epoll descriptor; closed for files
  asio::steady_timer timer_;
  bool running_ = false;
  bool busy_ = false;  // waits or sends
  uint64_t runs_ = 0;  // handlers of an earlier run do nothing
  bool ended_ = false;
  std::string data_;  // bytes that rank 0 has not accepted yet
};

// Reports once that there is something to read at `fd`, which is borrowed, and reads nothing. On
// the loop's thread, which must outlive it; `on_input` is not called after its end.
class StdinWatch {
 public:
  StdinWatch(asio::io_context& loop, int fd, std::function<void()> on_input);

 private:
  asio::posix::stream_descriptor readable_;
};

}  // namespace dslaunch
