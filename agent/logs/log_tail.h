// Reads the workers' log files as they grow. The files are the buffer: nothing is read before it is
// asked for, so memory stays bounded however fast workers write and however slowly the reader
// takes.
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

// Follows append-only files. All on the io_context's thread.
class LogTail {
 public:
  struct Chunk {
    int id = 0;           // as given to AddFile
    uint64_t offset = 0;  // of `data` in the file
    std::string data;
    uint64_t skipped_bytes = 0;  // before `data`, because the reader lags or they are gone
  };

  static constexpr uint64_t kDefaultMaxLagBytes = 64u << 20;

  // `on_readable` is called from the io_context, never from within a call: once when there are
  // bytes to read, and again only after Next had nothing. A file more than `max_lag_bytes` ahead of
  // its reader is skipped through, and so is what was given back to the disk (a hole).
  LogTail(asio::io_context& io, std::function<void()> on_readable,
          uint64_t max_lag_bytes = kDefaultMaxLagBytes);
  ~LogTail();

  // Follows a file from `offset`. It need not exist yet; one that is truncated is read again from
  // its start.
  void AddFile(int id, std::string path, uint64_t offset = 0);

  // The files followed so far will not grow any more: they are read to their end before any that is
  // added later, and let go.
  void RetireFiles();

  // The next bytes of a file that has any, taking turns; at most `max_bytes`. nullopt: nothing new,
  // and on_readable will be called when there is.
  std::optional<Chunk> Next(size_t max_bytes);

  // Whether all bytes that the file has now were returned.
  bool Drained(int id) const;

  // Bytes in all files not returned yet.
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
  bool armed_ = false;  // on_readable is due at the next byte
  asio::steady_timer poll_timer_;
  // Counts how often it was armed. A handler that finds another number, or none, comes too late to
  // act.
  std::shared_ptr<uint64_t> generation_ = std::make_shared<uint64_t>(0);
};

// The last lines of a file: at most `max_lines` and `max_bytes`, whole lines as far as they fit.
// Empty when it cannot be read.
std::string LastLines(const std::string& path, size_t max_lines = 50, size_t max_bytes = 64 * 1024);

}  // namespace dslaunch
