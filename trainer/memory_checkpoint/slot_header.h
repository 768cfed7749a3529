// Defines the format of a slot, which is the memory of one copy: a header in the first page, then
// the bytes of the copy. Python programs also write and read this format
// (python/dslaunch/memory.py).
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace dslaunch {

// The identity of the state in a copy. Results of the same step may differ between attempts, so
// ranks only combine copies of one attempt.
struct CopyId {
  int64_t step = 0;
  uint64_t attempt = 0;  // number of the attempt that made the copy

  auto operator<=>(const CopyId&) const = default;
};

struct SlotHeader {
  CopyId id;
  uint32_t rank = 0;
  uint32_t world_size = 0;
  uint64_t layout = 0;  // LayoutHash() of the layout with which the copy was written
  uint64_t bytes = 0;   // size of the copy without the header
  uint32_t crc32 = 0;   // checksum of the copy's bytes

  bool operator==(const SlotHeader&) const = default;
};

inline constexpr size_t kSlotHeaderBytes = 4096;  // one page, so that the copy is aligned
inline constexpr size_t kSlotHeaderFields = 56;  // bytes of the header without the rest of its page
// Offset, in the header's page, of the last completed step and the step's complement, 8 bytes each.
// Only the first slot of a rank has them. They are not part of a copy.
inline constexpr size_t kNotedStepOffset = 64;

// Returns the bytes of the header in little-endian order, including a checksum of its members.
std::array<std::byte, kSlotHeaderFields> EncodeSlotHeader(const SlotHeader& header);

// Parses the header of a slot, whose bytes are not trusted. Returns nullopt if the slot contains no
// copy, the header is damaged, or the slot is too small for the copy.
std::optional<SlotHeader> DecodeSlotHeader(std::span<const std::byte> slot);

// Returns a hash of a layout's text: FNV-1a with 64 bits.
uint64_t LayoutHash(std::string_view layout);

}  // namespace dslaunch
