// One end of a byte stream on a loop: of a socket, of two pipes, or of a pair within the process,
// which needs no descriptors.
#pragma once

#include <asio/io_context.hpp>
#include <cstddef>
#include <functional>
#include <memory>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/unique_fd.h"

namespace dslaunch {

// All on the loop's thread, its destruction too, which closes it. Like a non-blocking socket: what
// the other end has written before its end can still be read.
class StreamEnd {
 public:
  // Destroyed without a call, or called with an error, once this end is closed.
  using OnReady = std::function<void(std::error_code)>;

  virtual ~StreamEnd() = default;

  // `then` is called once, later, when a call of Read or Write may succeed or fail for good. One
  // wait of a kind at a time.
  virtual void AwaitReadable(OnReady then) = 0;
  virtual void AwaitWritable(OnReady then) = 0;

  // How many bytes that was, at least one without an error. IsToBeAwaited(error): none now.
  virtual size_t Read(char* to, size_t size, std::error_code& error) = 0;
  virtual size_t Write(std::string_view bytes, std::error_code& error) = 0;

  // This end writes no more; the other reads the end.
  virtual void ShutWrite() = 0;
  // The same, and it takes no more.
  virtual void Shut() = 0;
};

bool IsToBeAwaited(std::error_code error);

// Of descriptors, which become non-blocking. `in` is a socket for both directions, unless `out`
// is given. SIGPIPE must be ignored.
std::unique_ptr<StreamEnd> MakeStreamEnd(asio::io_context& loop, UniqueFd in,
                                         UniqueFd out = UniqueFd());

// Two ends within this process. Each direction holds 256 KiB at most, and no memory while it is
// empty.
std::pair<std::unique_ptr<StreamEnd>, std::unique_ptr<StreamEnd>> MakeStreamPair(
    asio::io_context& loop);

}  // namespace dslaunch
