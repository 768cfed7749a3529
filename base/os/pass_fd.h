// Bytes over a connected Unix stream socket, with a descriptor beside them.
#pragma once

#include <cstddef>
#include <string_view>

#include "base/unique_fd.h"

namespace dslaunch {

// As send(2) does; a copy of descriptor `fd` travels with the first byte (-1: none). Never raises
// SIGPIPE. -1 with errno set: EAGAIN, of a socket that does not block, when the reader is far
// behind.
long SendSomeWithFd(int socket, std::string_view bytes, int fd);

// The same for all of `bytes`; of a socket that blocks. False with errno set when the other end is
// gone.
bool SendWithFd(int socket, std::string_view bytes, int fd);

// As recv(2) does, up to `size` bytes; a descriptor that came with them replaces `fd`, and is
// closed on exec. -1 with errno set, 0 at the end.
long ReceiveWithFd(int socket, char* bytes, size_t size, UniqueFd& fd);

}  // namespace dslaunch
