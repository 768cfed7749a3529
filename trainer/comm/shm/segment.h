// Provides memory that several processes of one machine share.
#pragma once

#include <sys/types.h>

#include <cstddef>

#include "base/unique_fd.h"

namespace dslaunch {

// A segment of shared memory. It has no name, so the kernel frees it when the last process that
// uses it exits for any reason. It does not depend on the size of /dev/shm, which is small in
// containers. A page takes memory only after a write to the page. The size is sealed, so no process
// can change it.
class SharedSegment {
 public:
  // Creates a segment filled with zeros. Throws std::system_error.
  static SharedSegment Make(size_t bytes);
  // Opens the segment that process `pid` has open as descriptor `fd`. Both processes must have the
  // same user and /proc. Throws std::system_error, with EINVAL if the segment has another size or
  // if its size is not sealed.
  static SharedSegment Open(pid_t pid, int fd, size_t bytes);

  SharedSegment() = default;
  SharedSegment(SharedSegment&& other) noexcept;
  SharedSegment& operator=(SharedSegment&& other) noexcept;
  ~SharedSegment();

  std::byte* data() const { return data_; }
  int fd() const { return fd_.get(); }
  // Closes the descriptor. Call it when no other process still has to open the segment.
  void CloseFd() { fd_ = UniqueFd(); }

 private:
  SharedSegment(UniqueFd fd, size_t bytes);

  UniqueFd fd_;
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace dslaunch
