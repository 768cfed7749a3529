// Writes files durably and reads them with checksums, so that a file is complete on disk before
// anything refers to it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/unique_fd.h"
#include "trainer/base/crc32.h"  // IWYU pragma: export

namespace dslaunch {

// The size and checksum of a file. Detects damage, not forgery.
struct FileSum {
  uint64_t bytes = 0;
  uint32_t crc32 = 0;
  bool operator==(const FileSum&) const = default;
};

// A file being written. All errors are TrainError kIo and name the file.
class NewFile {
 public:
  explicit NewFile(std::string path);  // creates the file, which must not exist
  void Write(const void* data, size_t bytes);
  // Waits until the content is on disk, and closes the file.
  FileSum Finish();

 private:
  std::string path_;
  UniqueFd fd_;
  FileSum sum_;
};

// Writes a file that must not exist yet, and waits until it is on disk. kIo.
FileSum WriteNewFile(const std::string& path, const std::string& content);

// Reads the whole file. Throws kBadInput if it is missing or not a regular file, kIo if it cannot
// be read.
FileSum SumFile(const std::string& path);

// The checksum of a part of a file.
struct PartSum {
  uint64_t file_bytes = 0;  // size of the whole file
  uint32_t crc32 = 0;       // CRC-32 of the bytes in the part
};

// Reads only the bytes [begin, end) of a file, or fewer if the file ends earlier. Errors are those
// of SumFile.
PartSum SumPart(const std::string& path, uint64_t begin, uint64_t end);

// Makes the entries of a folder durable. Throws kIo.
void SyncFolder(const std::string& path);

}  // namespace dslaunch
