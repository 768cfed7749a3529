#include "trainer/base/durable_file.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "trainer/base/train_error.h"

namespace dslaunch {
namespace {

constexpr size_t kChunkBytes = 1 << 20;

[[noreturn]] void Fail(const std::string& path, const char* what) {
  throw TrainError(ExitCode::kIo, path + ": cannot be " + what + ": " + std::strerror(errno));
}

}  // namespace

NewFile::NewFile(std::string path)
    : path_(std::move(path)),
      fd_(open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666)) {
  if (!fd_) Fail(path_, "made");
}

void NewFile::Write(const void* data, size_t bytes) {
  const char* rest = static_cast<const char*>(data);
  while (bytes > 0) {
    // Summed and copied in pieces that stay in the processor's cache in between.
    const ssize_t n = write(fd_.get(), rest, std::min(bytes, kChunkBytes));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) Fail(path_, "written");
    const auto written = static_cast<size_t>(n);
    sum_.crc32 = Crc32(rest, written, sum_.crc32);
    sum_.bytes += written;
    rest += written;
    bytes -= written;
  }
}

FileSum NewFile::Finish() {
  if (fsync(fd_.get()) < 0) Fail(path_, "written");
  if (close(fd_.Release()) < 0) Fail(path_, "written");  // where network file systems report
  return sum_;
}

FileSum SumFile(const std::string& path) {
  // A pipe would be waited for, a device may never end.
  const UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd && errno == ENOENT) throw TrainError(ExitCode::kBadInput, path + " is missing");
  struct stat info;
  if (!fd || fstat(fd.get(), &info) < 0) Fail(path, "read");
  if (!S_ISREG(info.st_mode)) throw TrainError(ExitCode::kBadInput, path + " is not a file");
  FileSum sum;
  std::vector<char> chunk(kChunkBytes);
  while (true) {
    const ssize_t n = read(fd.get(), chunk.data(), chunk.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) Fail(path, "read");
    if (n == 0) return sum;
    sum.crc32 = Crc32(chunk.data(), static_cast<size_t>(n), sum.crc32);
    sum.bytes += static_cast<uint64_t>(n);
  }
}

void SyncFolder(const std::string& path) {
  const UniqueFd fd(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  // EINVAL: a file system that has nothing to wait for.
  if (!fd || (fsync(fd.get()) < 0 && errno != EINVAL)) Fail(path, "synced");
}

}  // namespace dslaunch
