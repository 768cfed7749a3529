// Reads from given positions of a file that is not trusted and may change meanwhile.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/unique_fd.h"

namespace dslaunch {

// A regular file that is open for reading. Movable. Const methods may be called on several threads.
// Errors are TrainError and name the file: kBadInput if the file is missing, is not a regular file
// or is too short, and kIo if it cannot be read.
class InputFile {
 public:
  explicit InputFile(std::string path);

  const std::string& path() const { return path_; }
  uint64_t bytes() const { return bytes_; }  // returns the size in bytes when the file was opened
  // Reads exactly `bytes` bytes, beginning at byte `offset`.
  void Read(uint64_t offset, void* out, size_t bytes) const;

 private:
  std::string path_;
  UniqueFd fd_;
  uint64_t bytes_ = 0;
};

// Reads runs of bytes of a file into given places in memory. A separate read costs more than a few
// additional bytes, so runs that are near each other in the file are read together with the bytes
// between them. Buffers at most 1 MiB of the file and 65,536 runs. Not thread-safe.
class GatheringReads {
 public:
  // Reads from `file` into `out`; both must outlive this object.
  GatheringReads(const InputFile& file, void* out) : file_(file), out_(static_cast<char*>(out)) {}
  // Adds a run of `bytes` bytes, from byte `in_file` of the file to byte `in_out` of the memory.
  // The memory may be written by this call or by a later one. Adding runs in the file's order is
  // fastest.
  void Add(uint64_t in_file, size_t in_out, size_t bytes);
  // Reads all runs that have not been read yet.
  void Finish();

 private:
  struct Run {
    uint64_t in_file = 0;
    size_t in_out = 0;
    size_t bytes = 0;
  };
  const InputFile& file_;
  char* out_;
  std::vector<Run> runs_;  // pending runs; the first run has the lowest position in the file
  uint64_t end_ = 0;       // highest end of the pending runs in the file
  std::string span_;
};

}  // namespace dslaunch
