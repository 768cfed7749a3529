// Defines one end of a byte stream on a loop: a socket, two pipes, or a pair within the process
// that needs no descriptors.
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

// Behaves as a non-blocking socket does: bytes that the peer wrote before its end can still be
// read. All calls are on the loop's thread. The destructor closes the end.
class StreamEnd {
 public:
  // A callback for readiness. After this end is closed, it is destroyed without a call, or called
  // with an error.
  using OnReady = std::function<void(std::error_code)>;

  virtual ~StreamEnd() = default;

  // Call `then` once, later, when Read or Write can succeed or has failed permanently. At most one
  // wait of each kind may be pending.
  virtual void AwaitReadable(OnReady then) = 0;
  virtual void AwaitWritable(OnReady then) = 0;

  // Return the number of bytes moved, at least one unless `error` is set. If IsToBeAwaited(error),
  // no byte can be moved now.
  virtual size_t Read(char* to, size_t size, std::error_code& error) = 0;
  virtual size_t Write(std::string_view bytes, std::error_code& error) = 0;

  // Ends writing. The peer then reads the end of the stream.
  virtual void ShutWrite() = 0;
  // Ends both writing and reading.
  virtual void Shut() = 0;
};

bool IsToBeAwaited(std::error_code error);

// Makes an end from descriptors, which become non-blocking. `in` is a socket used in both
// directions unless `out` is given. Precondition: SIGPIPE is ignored.
std::unique_ptr<StreamEnd> MakeStreamEnd(asio::io_context& loop, UniqueFd in,
                                         UniqueFd out = UniqueFd());

// Makes two connected ends within this process. Each direction holds at most 256 KiB, and no memory
// while it is empty.
std::pair<std::unique_ptr<StreamEnd>, std::unique_ptr<StreamEnd>> MakeStreamPair(
    asio::io_context& loop);

}  // namespace dslaunch
