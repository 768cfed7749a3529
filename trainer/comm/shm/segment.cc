#include "trainer/comm/shm/segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <string>
#include <system_error>
#include <utility>

namespace dslaunch {
namespace {

// File seals that prevent a change of size. A process that accesses memory beyond the end of a file
// would be killed by SIGBUS.
constexpr int kSizeSeals = F_SEAL_SHRINK | F_SEAL_GROW;

[[noreturn]] void Throw(const std::string& what) {
  throw std::system_error(errno, std::generic_category(), what);
}

}  // namespace

SharedSegment SharedSegment::Make(size_t bytes) {
  UniqueFd fd(memfd_create("dslaunch-ranks", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd) Throw("memfd_create");
  if (ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) Throw("ftruncate");
  if (fcntl(fd.get(), F_ADD_SEALS, kSizeSeals | F_SEAL_SEAL) != 0) Throw("F_ADD_SEALS");
  return SharedSegment(std::move(fd), bytes);
}

SharedSegment SharedSegment::Open(pid_t pid, int fd, size_t bytes) {
  const std::string path = "/proc/" + std::to_string(pid) + "/fd/" + std::to_string(fd);
  UniqueFd own(open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (!own) Throw(path);
  struct stat status = {};
  if (fstat(own.get(), &status) != 0) Throw(path);
  const int seals = fcntl(own.get(), F_GET_SEALS);
  const bool is_sealed = seals >= 0 && (seals & kSizeSeals) == kSizeSeals;
  if (!is_sealed || status.st_size != static_cast<off_t>(bytes)) {
    errno = EINVAL;
    Throw(path);
  }
  return SharedSegment(std::move(own), bytes);
}

SharedSegment::SharedSegment(UniqueFd fd, size_t bytes) : fd_(std::move(fd)), bytes_(bytes) {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd_.get(), 0);
  if (memory == MAP_FAILED) Throw("mmap");
  data_ = static_cast<std::byte*>(memory);
}

SharedSegment::SharedSegment(SharedSegment&& other) noexcept { *this = std::move(other); }

SharedSegment& SharedSegment::operator=(SharedSegment&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

SharedSegment::~SharedSegment() {
  if (data_ != nullptr) munmap(data_, bytes_);
}

}  // namespace dslaunch
