// The format of a slot, the memory of one copy: a header in its first page, then the copy's bytes.
// Python programs write and read it too (python/dslaunch/memory.py).
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace dslaunch {

// The state that a copy holds. Attempts may differ in the results of a step, so ranks only combine
// copies of one attempt.
struct CopyId {
  int64_t step = 0;
  uint64_t attempt = 0;  // attempt that made the copy

  auto operator<=>(const CopyId&) const = default;
};

struct SlotHeader {
  CopyId id;
  uint32_t rank = 0;
  uint32_t world_size = 0;
  uint64_t layout = 0;  // LayoutHash() of its writer
  uint64_t bytes = 0;   // size of the copy
  uint32_t crc32 = 0;   // checksum of the copy

  bool operator==(const SlotHeader&) const = default;
};

inline constexpr size_t kSlotHeaderBytes = 4096;  // a page, so that the copy begins at one
inline constexpr size_t kSlotHeaderFields = 56;   // bytes of the header itself
// Offset in that page of the last completed step and of its complement, 8 bytes each. They are in
// the first slot of a rank only, and no part of a copy.
inline constexpr size_t kNotedStepOffset = 64;

// Returns the header's fields in little-endian order, with a checksum of their own.
std::array<std::byte, kSlotHeaderFields> EncodeSlotHeader(const SlotHeader& header);

// Parses the header of a slot, whose bytes are not trusted. nullopt if the slot holds no copy, the
// header is damaged, or the slot is too small for the copy.
std::optional<SlotHeader> DecodeSlotHeader(std::span<const std::byte> slot);

// Returns a hash of a layout's text: FNV-1a with 64 bits.
uint64_t LayoutHash(std::string_view layout);

}  // namespace dslaunch
