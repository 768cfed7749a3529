#include "agent/logs/log_tail.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <asio/post.hpp>
#include <cerrno>
#include <chrono>
#include <utility>

namespace dslaunch {
namespace {

// Polling intervals after all bytes have been read. The first is short. The slowest causes no
// noticeable load, yet is too short to be noticed on the screen. A poll costs one fstat per file.
// The kernel takes 10 to 20 ms to close inotify, which would delay the agent's exit, so inotify is
// not used.
constexpr std::chrono::milliseconds kFirstPoll{5};
constexpr std::chrono::milliseconds kSlowestPoll{50};
constexpr size_t kLineSearchBytes = 64 * 1024;

UniqueFd OpenForReading(const std::string& path) {
  return UniqueFd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
}

uint64_t SizeOf(int fd) {
  struct stat status;
  return ::fstat(fd, &status) == 0 && status.st_size > 0 ? static_cast<uint64_t>(status.st_size)
                                                         : 0;
}

// Returns up to `max_bytes` at `offset`; empty at the end of the file or on an error.
std::string ReadAt(int fd, uint64_t offset, size_t max_bytes) {
  std::string data(max_bytes, '\0');
  ssize_t count;
  do {
    count = ::pread(fd, data.data(), data.size(), static_cast<off_t>(offset));
  } while (count < 0 && errno == EINTR);
  data.resize(count > 0 ? static_cast<size_t>(count) : 0);
  return data;
}

// Returns the distance from `offset` to the next byte outside of a hole, at most `available`.
uint64_t NextData(int fd, uint64_t offset, uint64_t available) {
  const off_t data = ::lseek(fd, static_cast<off_t>(offset), SEEK_DATA);
  if (data < 0)
    return errno == ENXIO ? available : 0;  // other errors mean that the file system lacks holes
  return std::min(static_cast<uint64_t>(data) - offset, available);
}

}  // namespace

LogTail::LogTail(asio::io_context& io, std::function<void()> on_readable, uint64_t max_lag_bytes)
    : max_lag_bytes_(max_lag_bytes), on_readable_(std::move(on_readable)), poll_timer_(io) {}

LogTail::~LogTail() = default;

void LogTail::AddFile(int id, std::string path, uint64_t offset) {
  if (files_.empty()) Arm();
  File file;
  file.id = id;
  file.path = std::move(path);
  file.offset = offset;
  files_.push_back(std::move(file));
  Open(files_.back());
  if (!armed_) return;  // the reader is active and will read this file
  asio::post(poll_timer_.get_executor(), [this, is_current = Guard()] {
    if (is_current()) Check();
  });
}

void LogTail::Open(File& file) {
  if (!file.fd) file.fd = OpenForReading(file.path);
}

uint64_t LogTail::NewBytes(const File& file) {
  if (!file.fd) return 0;
  const uint64_t size = SizeOf(file.fd.get());
  return size >= file.offset ? size - file.offset : size;
}

void LogTail::RetireFiles() {
  for (File& file : files_) file.retired = true;
}

std::optional<LogTail::Chunk> LogTail::NextRetired(size_t max_bytes) {
  while (!files_.empty() && files_.front().retired) {
    Open(files_.front());
    if (auto chunk = Read(files_.front(), max_bytes)) return chunk;
    files_.erase(files_.begin());
    turn_ = 0;
  }
  return std::nullopt;
}

std::optional<LogTail::Chunk> LogTail::Next(size_t max_bytes) {
  if (auto chunk = NextRetired(max_bytes)) return chunk;
  for (size_t i = 0; i < files_.size(); ++i) {
    turn_ = (turn_ + 1) % files_.size();
    Open(files_[turn_]);
    if (auto chunk = Read(files_[turn_], max_bytes)) return chunk;
  }
  Arm();
  return std::nullopt;
}

std::optional<LogTail::Chunk> LogTail::Read(File& file, size_t max_bytes) {
  uint64_t available = NewBytes(file);
  if (available == 0) return std::nullopt;
  // The file was truncated, so it is read from its start again.
  if (SizeOf(file.fd.get()) < file.offset) file.offset = 0;
  Chunk chunk;
  chunk.id = file.id;
  chunk.skipped_bytes = NextData(file.fd.get(), file.offset, available);
  if (available > max_lag_bytes_)
    chunk.skipped_bytes = std::max(chunk.skipped_bytes, available - max_lag_bytes_ / 2);
  if (chunk.skipped_bytes > 0) {
    const std::string ahead =
        ReadAt(file.fd.get(), file.offset + chunk.skipped_bytes - 1, kLineSearchBytes);
    const size_t newline = ahead.find('\n');
    if (newline != std::string::npos) chunk.skipped_bytes += newline;
    file.offset += chunk.skipped_bytes;
  }
  chunk.offset = file.offset;
  chunk.data = ReadAt(file.fd.get(), file.offset, max_bytes);
  file.offset += chunk.data.size();
  if (chunk.data.empty() && chunk.skipped_bytes == 0) return std::nullopt;
  return chunk;
}

bool LogTail::Drained(int id) const {
  return std::all_of(files_.begin(), files_.end(),
                     [id](const File& file) { return file.id != id || NewBytes(file) == 0; });
}

uint64_t LogTail::Remaining() const {
  uint64_t bytes = 0;
  for (const File& file : files_) bytes += NewBytes(file);
  return bytes;
}

void LogTail::Arm() {
  if (armed_) return;
  armed_ = true;
  ++*generation_;
  Poll(kFirstPoll);
}

// Returns a function by which a callback checks whether the object still exists and was not armed
// again since.
std::function<bool()> LogTail::Guard() const {
  return [weak = std::weak_ptr(generation_), mine = *generation_] {
    const auto generation = weak.lock();
    return generation && *generation == mine;
  };
}

void LogTail::Poll(std::chrono::milliseconds delay) {
  poll_timer_.expires_after(delay);
  poll_timer_.async_wait([this, delay, is_current = Guard()](const asio::error_code& error) {
    if (error || !is_current()) return;
    Check();
    if (is_current()) Poll(std::min(2 * delay, kSlowestPoll));
  });
}

// Calls on_readable once if there are bytes to read.
void LogTail::Check() {
  for (File& file : files_) Open(file);
  if (Remaining() == 0) return;
  armed_ = false;
  ++*generation_;
  poll_timer_.cancel();
  on_readable_();
}

std::string LastLines(const std::string& path, size_t max_lines, size_t max_bytes) {
  const UniqueFd fd = OpenForReading(path);
  if (!fd) return "";
  const uint64_t size = SizeOf(fd.get());
  const uint64_t begin = size > max_bytes ? size - max_bytes : 0;
  std::string text = ReadAt(fd.get(), begin, static_cast<size_t>(size - begin));
  if (begin > 0) {
    // The first line is incomplete, so it is removed unless it is the only line.
    const size_t newline = text.find('\n');
    if (newline != std::string::npos && newline + 1 < text.size()) text.erase(0, newline + 1);
  }
  size_t lines = 0;
  size_t start = text.size();
  if (start > 0 && text.back() == '\n') --start;
  while (start > 0 && lines < max_lines) {
    const size_t newline = text.rfind('\n', start - 1);
    ++lines;
    if (newline == std::string::npos) return text;
    if (lines == max_lines) return text.substr(newline + 1);
    start = newline;
  }
  return text;
}

}  // namespace dslaunch
