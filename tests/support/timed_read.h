// Reads from a descriptor with a time limit.
#pragma once

#include <poll.h>
#include <unistd.h>

#include <string>

#include "base/deadline.h"

namespace dslaunch {

// Reads up to `size` bytes from `fd`. Returns the bytes that arrived before `size` was reached, end
// of file, or `limit`.
inline std::string TimedRead(int fd, size_t size, milliseconds limit = milliseconds(5'000)) {
  const Deadline deadline = Deadline::After(limit);
  std::string text;
  while (text.size() < size) {
    pollfd ready = {fd, POLLIN, 0};
    if (poll(&ready, 1, deadline.PollMs()) <= 0) break;
    std::string piece(size - text.size(), '\0');
    const ssize_t n = read(fd, piece.data(), piece.size());
    if (n <= 0) break;
    text.append(piece, 0, static_cast<size_t>(n));
  }
  return text;
}

}  // namespace dslaunch
