// Positioned reads of a file that is not trusted and may change meanwhile.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/unique_fd.h"

namespace dslaunch {

// A regular file that is open for reading. Movable; const methods may be called on several threads.
// Errors are TrainError and name the file: kBadInput if it is missing, not a regular file or too
// short, kIo if it cannot be read.
class InputFile {
 public:
  explicit InputFile(std::string path);

  const std::string& path() const { return path_; }
  uint64_t bytes() const { return bytes_; }  // size when it was opened
  // Reads exactly `bytes` bytes from byte `offset` on.
  void Read(uint64_t offset, void* out, size_t bytes) const;

 private:
  std::string path_;
  UniqueFd fd_;
  uint64_t bytes_ = 0;
};

// Reads runs of bytes of a file into their places in memory. Runs that are near each other in the
// file are read at once with the bytes between them, because a read costs more than copying those.
// Holds at most 1 MiB of the file and 65,536 runs.
class GatheringReads {
 public:
  // Both must outlive this.
  GatheringReads(const InputFile& file, void* out) : file_(file), out_(static_cast<char*>(out)) {}
  // Adds a run: `bytes` bytes from byte `in_file` of the file on, for byte `in_out` of the memory.
  // The memory may be written now or later. Runs in the file's order are read fastest.
  void Add(uint64_t in_file, size_t in_out, size_t bytes);
  // Reads the runs that are left.
  void Finish();

 private:
  struct Run {
    uint64_t in_file = 0;
    size_t in_out = 0;
    size_t bytes = 0;
  };
  const InputFile& file_;
  char* out_;
  std::vector<Run> runs_;  // the first one begins before the others in the file
  uint64_t end_ = 0;       // end of the one that ends last
  std::string span_;
};

}  // namespace dslaunch
