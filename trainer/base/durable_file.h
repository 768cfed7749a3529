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

// Reads the whole file. kBadInput where it is missing or none, kIo where it cannot be read.
FileSum SumFile(const std::string& path);

// Makes the names in a folder durable. kIo.
void SyncFolder(const std::string& path);

}  // namespace dslaunch
