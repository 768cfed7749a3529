// Sends and receives bytes, with file descriptors attached, over a connected Unix stream socket.
#pragma once

#include <cstddef>
#include <string_view>

#include "base/unique_fd.h"

namespace dslaunch {

// Sends bytes as send(2) does, with a copy of descriptor `fd` attached to the first byte; -1
// attaches none. Never raises SIGPIPE. Returns the number of bytes sent, or -1 with errno set.
// errno is EAGAIN if the socket is non-blocking and its buffer is full.
long SendSomeWithFd(int socket, std::string_view bytes, int fd);

// Sends all of `bytes`, with a copy of descriptor `fd` attached to the first byte; -1 attaches
// none. Returns false with errno set if sending fails, such as when the peer has closed the
// connection. Precondition: the socket is blocking.
bool SendWithFd(int socket, std::string_view bytes, int fd);

// Receives up to `size` bytes as recv(2) does. An attached descriptor replaces `fd`, and is closed
// on exec. Returns the number of bytes, 0 at the end of the stream, or -1 with errno set.
long ReceiveWithFd(int socket, char* bytes, size_t size, UniqueFd& fd);

}  // namespace dslaunch
