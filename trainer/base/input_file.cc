#include "trainer/base/input_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "trainer/base/train_error.h"

namespace dslaunch {
namespace {

constexpr size_t kMaxSpanBytes = 1 << 20;
constexpr size_t kMaxGapBytes = 1 << 16;
constexpr size_t kMaxRuns = 1 << 16;

}  // namespace

InputFile::InputFile(std::string path)
    : path_(std::move(path)),
      // Opening a pipe must not block, so O_NONBLOCK is set.
      fd_(open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
  struct stat info;
  if (!fd_ || fstat(fd_.get(), &info) < 0) {
    throw TrainError(errno == ENOENT ? ExitCode::kBadInput : ExitCode::kIo,
                     path_ + ": cannot be read: " + std::strerror(errno));
  }
  if (!S_ISREG(info.st_mode)) RefuseInput(path_ + ": is not a file");
  bytes_ = static_cast<uint64_t>(info.st_size);
}

void InputFile::Read(uint64_t offset, void* out, size_t bytes) const {
  char* rest = static_cast<char*>(out);
  while (bytes > 0) {
    const ssize_t n = pread(fd_.get(), rest, bytes, static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      throw TrainError(ExitCode::kIo, path_ + ": cannot be read: " + std::strerror(errno));
    }
    if (n == 0) RefuseInput(path_ + ": has become shorter while it was read");
    rest += n;
    offset += static_cast<uint64_t>(n);
    bytes -= static_cast<size_t>(n);
  }
}

void GatheringReads::Add(uint64_t in_file, size_t in_out, size_t bytes) {
  const uint64_t end = in_file + bytes;
  if (!runs_.empty()) {
    const uint64_t first = runs_.front().in_file;
    if (in_file < first || in_file > end_ + kMaxGapBytes || end > first + kMaxSpanBytes ||
        runs_.size() == kMaxRuns) {
      Finish();
    } else if (Run& last = runs_.back();
               in_file == last.in_file + last.bytes && in_out == last.in_out + last.bytes) {
      last.bytes += bytes;
      end_ = std::max(end_, end);
      return;
    }
  }
  end_ = runs_.empty() ? end : std::max(end_, end);
  runs_.push_back({in_file, in_out, bytes});
}

void GatheringReads::Finish() {
  if (runs_.size() == 1) {
    file_.Read(runs_[0].in_file, out_ + runs_[0].in_out, runs_[0].bytes);
  } else if (!runs_.empty()) {
    const uint64_t first = runs_[0].in_file;
    span_.resize(end_ - first);
    file_.Read(first, span_.data(), span_.size());
    for (const Run& run : runs_) {
      std::memcpy(out_ + run.in_out, &span_[run.in_file - first], run.bytes);
    }
  }
  runs_.clear();
}

}  // namespace dslaunch
