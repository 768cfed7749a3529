// Maps a file into memory. Bytes are read from disk on first access, and ranks on the same machine
// share them.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>

namespace dslaunch {

// A file that is mapped into memory for reading. Movable, not copyable. Const methods may be called
// on several threads. If the file is truncated while it is mapped, the process may end with SIGBUS.
class MappedFile {
 public:
  // Maps the file. Throws TrainError with the file's name: kBadInput if the file does not exist or
  // is not a regular file, and kIo if it cannot be read.
  explicit MappedFile(std::string path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  const std::string& path() const { return path_; }
  std::span<const uint8_t> bytes() const { return bytes_; }

 private:
  std::string path_;
  std::span<const uint8_t> bytes_;
};

// Reads a little-endian number, which need not be aligned. Precondition: `bytes` points to at least
// sizeof(T) bytes.
template <typename T>
T LittleEndianAt(const uint8_t* bytes) {
  static_assert(std::endian::native == std::endian::little);
  T value;
  std::memcpy(&value, bytes, sizeof(T));
  return value;
}

}  // namespace dslaunch
