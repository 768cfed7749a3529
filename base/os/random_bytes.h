// Random bytes from the kernel.
#pragma once

#include <sys/random.h>

#include <cerrno>
#include <span>

namespace dslaunch {

// `bytes`: 256 at most. False: errno says why there are none.
inline bool FillRandom(std::span<char> bytes) {
  while (::getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) {
    if (errno != EINTR) return false;
  }
  return true;
}

}  // namespace dslaunch
