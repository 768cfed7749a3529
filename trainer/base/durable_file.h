// Files that are on the disk, whole and checked, before anything refers to them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/unique_fd.h"
#include "trainer/base/crc32.h"  // IWYU pragma: export

namespace dslaunch {

// What a file must be for its content to be believed. The sum finds damage, not forgery.
struct FileSum {
  uint64_t bytes = 0;
  uint32_t crc32 = 0;
  bool operator==(const FileSum&) const = default;
};

// A file being written. All errors are TrainError kIo and name it.
class NewFile {
 public:
  explicit NewFile(std::string path);  // must not exist yet
  void Write(const void* data, size_t bytes);
  // Waits until the content is on the disk, and closes.
  FileSum Finish();

 private:
  std::string path_;
  UniqueFd fd_;
  FileSum sum_;
};

// Reads the whole file. kBadInput if it is missing or no regular file, kIo if it cannot be read.
FileSum SumFile(const std::string& path);

// The checksum of a part of a file.
struct PartSum {
  uint64_t file_bytes = 0;  // size of the whole file
  uint32_t crc32 = 0;       // of the bytes that were read
};

// Reads the bytes [begin, end) of a file, or up to its end if it is shorter, and no others. Errors
// as SumFile.
PartSum SumPart(const std::string& path, uint64_t begin, uint64_t end);

// Makes the names in a folder durable. kIo.
void SyncFolder(const std::string& path);

}  // namespace dslaunch
