// A file mapped into memory: its bytes are read from the disk when they are looked at, and the
// ranks of one machine share them.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>

namespace dslaunch {

// Movable, not copyable; const methods may be called from several threads. A file that is made
// shorter while it is mapped ends the process with SIGBUS.
class MappedFile {
 public:
  // Throws TrainError, naming the file: kBadInput where there is none, kIo where it cannot be read.
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

// A number that begins at any byte. `bytes` must hold all of it.
template <typename T>
T LittleEndianAt(const uint8_t* bytes) {
  static_assert(std::endian::native == std::endian::little);
  T value;
  std::memcpy(&value, bytes, sizeof(T));
  return value;
}

}  // namespace dslaunch
