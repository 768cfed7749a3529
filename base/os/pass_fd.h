// Bytes and descriptors over a connected Unix stream socket.
#pragma once

#include <cstddef>
#include <string_view>

#include "base/unique_fd.h"

namespace dslaunch {

// Sends like send(2), with a copy of descriptor `fd` attached to the first byte (-1: none). Never
// raises SIGPIPE. Returns -1 with errno set; EAGAIN if the socket is non-blocking and its buffer is
// full.
long SendSomeWithFd(int socket, std::string_view bytes, int fd);

// Sends all of `bytes` like SendSomeWithFd(). Precondition: the socket is blocking. Returns false
// with errno set if the peer has closed it.
bool SendWithFd(int socket, std::string_view bytes, int fd);

// Receives up to `size` bytes like recv(2). An attached descriptor replaces `fd` and is closed on
// exec. Returns -1 with errno set, or 0 at the end.
long ReceiveWithFd(int socket, char* bytes, size_t size, UniqueFd& fd);

}  // namespace dslaunch
