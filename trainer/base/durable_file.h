// Writes files durably, so that a file is complete on disk before anything refers to it, and
// verifies files by checksums.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/unique_fd.h"
#include "trainer/base/crc32.h"  // IWYU pragma: export

namespace dslaunch {

// The size and checksum of a file, with which accidental damage is detected, but not forgery.
struct FileSum {
  uint64_t bytes = 0;
  uint32_t crc32 = 0;
  bool operator==(const FileSum&) const = default;
};

// Writes a new file. All errors are TrainError kIo and name the file.
class NewFile {
 public:
  // Creates the file, which must not exist yet.
  explicit NewFile(std::string path);
  void Write(const void* data, size_t bytes);
  // Waits until the content is on disk, closes the file, and returns its size and checksum. Call it
  // once, after the last Write.
  FileSum Finish();

 private:
  std::string path_;
  UniqueFd fd_;
  FileSum sum_;
};

// Writes a file and waits until it is on disk. Returns its size and checksum. Throws kIo if the
// file already exists or cannot be written.
FileSum WriteNewFile(const std::string& path, const std::string& content);

// Reads a whole file and returns its size and checksum. Throws kBadInput if the file is missing, is
// not a regular file or becomes shorter meanwhile, and kIo if it cannot be read.
FileSum SumFile(const std::string& path);

// The checksum of a part of a file, with the size of the whole file.
struct PartSum {
  uint64_t file_bytes = 0;  // size of the whole file in bytes
  uint32_t crc32 = 0;       // CRC-32 of the bytes in the part
};

// Returns the checksum of the bytes [begin, end) of a file, or of fewer bytes if the file ends
// earlier. Reads only these bytes. Throws kBadInput if the file is missing, is not a regular file
// or becomes shorter meanwhile, and kIo if it cannot be read.
PartSum SumPart(const std::string& path, uint64_t begin, uint64_t end);

// Waits until the entries of a folder are on disk. Throws kIo if that fails.
void SyncFolder(const std::string& path);

}  // namespace dslaunch
