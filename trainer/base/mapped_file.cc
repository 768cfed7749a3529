#include "trainer/base/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <utility>

#include "base/unique_fd.h"
#include "trainer/base/train_error.h"

namespace dslaunch {

MappedFile::MappedFile(std::string path) : path_(std::move(path)) {
  const auto unreadable = [&] {
    return TrainError(errno == ENOENT ? ExitCode::kBadInput : ExitCode::kIo,
                      path_ + ": cannot be read: " + std::strerror(errno));
  };
  // Opening a pipe without O_NONBLOCK would wait for its writer, so the flag is set.
  const UniqueFd fd(open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat info;
  if (!fd || fstat(fd.get(), &info) < 0) throw unreadable();
  if (!S_ISREG(info.st_mode)) throw TrainError(ExitCode::kBadInput, path_ + ": is not a file");
  if (info.st_size == 0) return;  // mmap() rejects an empty file
  const auto size = static_cast<size_t>(info.st_size);
  void* start = mmap(nullptr, size, PROT_READ, MAP_SHARED, fd.get(), 0);
  if (start == MAP_FAILED) throw unreadable();
  bytes_ = {static_cast<const uint8_t*>(start), size};
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)), bytes_(std::exchange(other.bytes_, {})) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) munmap(const_cast<uint8_t*>(bytes_.data()), bytes_.size());
}

}  // namespace dslaunch
