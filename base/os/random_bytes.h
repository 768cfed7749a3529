// Gets random bytes from the kernel.
#pragma once

#include <sys/random.h>

#include <cerrno>
#include <span>

namespace dslaunch {

// Fills `bytes` (at most 256) with random bytes. Returns false with errno set on failure.
inline bool FillRandom(std::span<char> bytes) {
  while (::getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) {
    if (errno != EINTR) return false;
  }
  return true;
}

}  // namespace dslaunch
