// Memory shared by several processes of one machine.
#pragma once

#include <sys/types.h>

#include <cstddef>

#include "base/unique_fd.h"

namespace dslaunch {

// The segment has no name, so the kernel frees it when the last process that uses it ends, for
// whatever reason, and a small /dev/shm, as in containers, does not matter. Pages use memory once
// they are written to. The size is sealed, so no process can change it.
class SharedSegment {
 public:
  // Makes a segment of zeros. Both functions throw std::system_error.
  static SharedSegment Make(size_t bytes);
  // Opens the segment that process `pid` has as descriptor `fd`, which needs the same user and
  // /proc. EINVAL if it has another size, or its size is not sealed.
  static SharedSegment Open(pid_t pid, int fd, size_t bytes);

  SharedSegment() = default;
  SharedSegment(SharedSegment&& other) noexcept;
  SharedSegment& operator=(SharedSegment&& other) noexcept;
  ~SharedSegment();

  std::byte* data() const { return data_; }
  int fd() const { return fd_.get(); }
  // Closes the descriptor once no other process needs to open the segment.
  void CloseFd() { fd_ = UniqueFd(); }

 private:
  SharedSegment(UniqueFd fd, size_t bytes);

  UniqueFd fd_;
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace dslaunch
