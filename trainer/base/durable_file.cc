#include "trainer/base/durable_file.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
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
    // A small piece stays in the processor's cache between the sum and the write, so the data is
    // processed in pieces.
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
  // Network file systems may report write errors only when the file is closed, so the result is
  // checked.
  if (close(fd_.Release()) < 0) Fail(path_, "written");
  return sum_;
}

FileSum WriteNewFile(const std::string& path, const std::string& content) {
  NewFile file(path);
  file.Write(content.data(), content.size());
  return file.Finish();
}

FileSum SumFile(const std::string& path) {
  const PartSum sum = SumPart(path, 0, std::numeric_limits<uint64_t>::max());
  return {sum.file_bytes, sum.crc32};
}

PartSum SumPart(const std::string& path, uint64_t begin, uint64_t end) {
  // Without O_NONBLOCK, opening a pipe would wait for its writer. Devices may have no end, so they
  // are rejected below.
  const UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd && errno == ENOENT) throw TrainError(ExitCode::kBadInput, path + " is missing");
  struct stat info;
  if (!fd || fstat(fd.get(), &info) < 0) Fail(path, "read");
  if (!S_ISREG(info.st_mode)) throw TrainError(ExitCode::kBadInput, path + " is not a file");
  PartSum sum{.file_bytes = static_cast<uint64_t>(info.st_size)};
  end = std::min(end, sum.file_bytes);
  std::vector<char> chunk(
      static_cast<size_t>(std::min<uint64_t>(kChunkBytes, end > begin ? end - begin : 0)));
  while (begin < end) {
    const auto wanted = static_cast<size_t>(std::min<uint64_t>(chunk.size(), end - begin));
    const ssize_t n = pread(fd.get(), chunk.data(), wanted, static_cast<off_t>(begin));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) Fail(path, "read");
    if (n == 0) throw TrainError(ExitCode::kBadInput, path + " became shorter while it was read");
    sum.crc32 = Crc32(chunk.data(), static_cast<size_t>(n), sum.crc32);
    begin += static_cast<uint64_t>(n);
  }
  return sum;
}

void SyncFolder(const std::string& path) {
  const UniqueFd fd(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  // EINVAL means that the file system does not support syncing folders, so it is ignored.
  if (!fd || (fsync(fd.get()) < 0 && errno != EINVAL)) Fail(path, "synced");
}

}  // namespace dslaunch
