// Defines how the memory of another process, or a recorded image of it, is read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <type_traits>

namespace dslaunch {

class MemoryReader {
 public:
  virtual ~MemoryReader() = default;

  // Fills `out` with the memory from `address` on. Returns false if part of that memory cannot be
  // read.
  virtual bool Read(uint64_t address, std::span<std::byte> out) = 0;

  // Returns the value at `address`; nullopt if it cannot be read.
  template <class T>
  std::optional<T> ReadValue(uint64_t address) {
    static_assert(std::is_trivially_copyable_v<T>);
    T value;
    if (!Read(address, std::as_writable_bytes(std::span(&value, 1)))) return std::nullopt;
    return value;
  }
};

}  // namespace dslaunch
