// Makes a file in memory, without a path on a disk.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <stdexcept>
#include <string>
#include <string_view>

#include "base/unique_fd.h"

namespace dslaunch {

class MemoryFile {
 public:
  explicit MemoryFile(std::string_view content = "") : fd_(memfd_create("fuzz", MFD_CLOEXEC)) {
    const ssize_t n = write(fd_.get(), content.data(), content.size());
    if (n != static_cast<ssize_t>(content.size()))
      throw std::runtime_error("the file to read could not be made");
  }

  int fd() const { return fd_.get(); }
  std::string path() const { return "/proc/self/fd/" + std::to_string(fd_.get()); }

  // Returns the current content of the file.
  std::string Content() const {
    std::string content(static_cast<size_t>(lseek(fd_.get(), 0, SEEK_END)), '\0');
    const ssize_t n = pread(fd_.get(), content.data(), content.size(), 0);
    content.resize(n > 0 ? static_cast<size_t>(n) : 0);
    return content;
  }

 private:
  UniqueFd fd_;
};

}  // namespace dslaunch
