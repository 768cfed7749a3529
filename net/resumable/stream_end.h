// Defines an end of a byte stream on an event loop: a socket, two pipes, or an end of a pair within
// this process that needs no descriptors.
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

// An end of a byte stream that behaves as a non-blocking socket does: bytes that the peer wrote
// before its end can still be read. All calls are made on the loop's thread. The destructor closes
// the end.
class StreamEnd {
 public:
  // Called when the end is ready. If this end is closed first, the callback is destroyed without a
  // call, or called with an error.
  using OnReady = std::function<void(std::error_code)>;

  virtual ~StreamEnd() = default;

  // Calls `then` once, later, when Read() can return bytes or an error. At most one such wait may
  // be pending.
  virtual void AwaitReadable(OnReady then) = 0;

  // Calls `then` once, later, when Write() can accept bytes or return an error. At most one such
  // wait may be pending.
  virtual void AwaitWritable(OnReady then) = 0;

  // Reads up to `size` bytes into `to` and returns their number, at least one unless `error` is
  // set. If IsToBeAwaited(error), no bytes are available now.
  virtual size_t Read(char* to, size_t size, std::error_code& error) = 0;

  // Writes bytes from the beginning of `bytes` and returns their number, at least one unless
  // `error` is set. If IsToBeAwaited(error), the stream accepts no bytes now.
  virtual size_t Write(std::string_view bytes, std::error_code& error) = 0;

  // Ends writing, so that the peer reads the end of the stream after all bytes.
  virtual void ShutWrite() = 0;
  // Ends writing and reading.
  virtual void Shut() = 0;
};

// Returns whether `error` only means that the operation would block or was interrupted, so that the
// caller must wait and try again.
bool IsToBeAwaited(std::error_code error);

// Returns an end of a stream over the given descriptors, which become non-blocking. If `out` is not
// given, `in` is a socket that is used in both directions. Precondition: SIGPIPE is ignored.
std::unique_ptr<StreamEnd> MakeStreamEnd(asio::io_context& loop, UniqueFd in,
                                         UniqueFd out = UniqueFd());

// Returns two connected ends within this process. Each direction holds at most 256 KiB, and no
// memory while it is empty.
std::pair<std::unique_ptr<StreamEnd>, std::unique_ptr<StreamEnd>> MakeStreamPair(
    asio::io_context& loop);

}  // namespace dslaunch
