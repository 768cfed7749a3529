// Reads the workers' log files as they grow. Bytes are read only on request and the files serve as
// the buffer, so memory stays bounded even if workers write fast and the reader is slow.
#pragma once

#include <asio/io_context.hpp>
#include <asio/steady_timer.hpp>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/unique_fd.h"

namespace dslaunch {

// Follows append-only files. All calls are made on the io_context's thread.
class LogTail {
 public:
  struct Chunk {
    int id = 0;           // id that was passed to AddFile()
    uint64_t offset = 0;  // offset of `data` in the file
    std::string data;
    // Number of bytes before `data` that were skipped, because the reader lags or their disk space
    // was freed.
    uint64_t skipped_bytes = 0;
  };

  static constexpr uint64_t kDefaultMaxLagBytes = 64u << 20;

  // `on_readable` is called from the io_context, never from within a call: once when there are
  // bytes to read, and again only after Next() has returned nullopt. Skips output if more than
  // `max_lag_bytes` are unread, and holes, whose disk space was freed.
  LogTail(asio::io_context& io, std::function<void()> on_readable,
          uint64_t max_lag_bytes = kDefaultMaxLagBytes);
  ~LogTail();

  // Follows a file from `offset` on. The file need not exist yet. A truncated file is read again
  // from its start.
  void AddFile(int id, std::string path, uint64_t offset = 0);

  // Marks the files that are followed so far as complete. They are read to their end before files
  // that are added later, and then closed.
  void RetireFiles();

  // Returns at most `max_bytes` from a file with unread bytes, taking turns between the files.
  // Returns nullopt if no bytes are unread; on_readable is then called once there are.
  std::optional<Chunk> Next(size_t max_bytes);

  // Returns whether Next() has returned all bytes that the file has now.
  bool Drained(int id) const;

  // Returns the number of unread bytes in all files.
  uint64_t Remaining() const;

 private:
  struct File {
    int id = 0;
    std::string path;
    UniqueFd fd;
    uint64_t offset = 0;
    bool retired = false;
  };

  void Open(File& file);
  static uint64_t NewBytes(const File& file);
  std::optional<Chunk> Read(File& file, size_t max_bytes);
  std::optional<Chunk> NextRetired(size_t max_bytes);
  void Arm();
  std::function<bool()> Guard() const;
  void Poll(std::chrono::milliseconds delay);
  void Check();

  const uint64_t max_lag_bytes_;
  std::function<void()> on_readable_;
  std::vector<File> files_;
  size_t turn_ = 0;
  bool armed_ = false;  // whether to call on_readable at the next byte
  asio::steady_timer poll_timer_;
  // Number of times that the object was armed. A callback does nothing if this number has changed
  // or the pointer has expired.
  std::shared_ptr<uint64_t> generation_ = std::make_shared<uint64_t>(0);
};

// Returns the last lines of a file, at most `max_lines` and `max_bytes`, in whole lines where
// possible. Empty if the file cannot be read.
std::string LastLines(const std::string& path, size_t max_lines = 50, size_t max_bytes = 64 * 1024);

}  // namespace dslaunch
