// Memory that several processes of one machine share.
#pragma once

#include <sys/types.h>

#include <cstddef>

#include "base/unique_fd.h"

namespace dslaunch {

// It has no name anywhere, so nothing is left of it when the last process that has it is gone,
// however that ended; and a small /dev/shm, as containers have it, does not matter. Pages take
// memory once they are written to. Its size is sealed: no process that has it can change that.
class SharedSegment {
 public:
  // Of zeros. Both throw std::system_error.
  static SharedSegment Make(size_t bytes);
  // The one that process `pid` has as its descriptor `fd`, which needs the same user and the same
  // /proc. EINVAL: it has another size, or its size is not sealed.
  static SharedSegment Open(pid_t pid, int fd, size_t bytes);

  SharedSegment() = default;
  SharedSegment(SharedSegment&& other) noexcept;
  SharedSegment& operator=(SharedSegment&& other) noexcept;
  ~SharedSegment();

  std::byte* data() const { return data_; }
  int fd() const { return fd_.get(); }
  // Nobody needs to open it any more.
  void CloseFd() { fd_ = UniqueFd(); }

 private:
  SharedSegment(UniqueFd fd, size_t bytes);

  UniqueFd fd_;
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace dslaunch
