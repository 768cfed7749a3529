// A file mapped into memory: bytes are read from disk on first access, and ranks on one machine
// share them.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>

namespace dslaunch {

// Movable, not copyable. Const methods may be called on several threads. If the file is truncated
// while mapped, the process ends with SIGBUS.
class MappedFile {
 public:
  // Throws TrainError that names the file: kBadInput if it does not exist, kIo if it cannot be
  // read.
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

// Reads a little-endian number at any alignment. Precondition: `bytes` holds at least sizeof(T)
// bytes.
template <typename T>
T LittleEndianAt(const uint8_t* bytes) {
  static_assert(std::endian::native == std::endian::little);
  T value;
  std::memcpy(&value, bytes, sizeof(T));
  return value;
}

}  // namespace dslaunch
