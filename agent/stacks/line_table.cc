#include "agent/stacks/line_table.h"

#include <optional>

namespace dslaunch {
namespace {

constexpr int kUnitBytes = 2;  // size of a code unit of bytecode

// Returns the line in a co_lnotab: pairs of bytes with the distance to the next entry in the
// bytecode and the change of the line.
int FindInPairs(std::span<const std::byte> table, int64_t line, int64_t instruction) {
  int64_t position = 0;
  for (size_t i = 0; i + 1 < table.size(); i += 2) {
    position += std::to_integer<int64_t>(table[i]);
    if (position > instruction) break;
    line += static_cast<int8_t>(table[i + 1]);
  }
  return static_cast<int>(line);
}

// Returns the line in a table of PEP 626: pairs of bytes with the length of a range and the change
// of the line before the range; -128 if the range has no line.
int FindInRanges(std::span<const std::byte> table, int64_t line, int64_t instruction) {
  constexpr int8_t kNoLine = -128;
  int64_t end = 0;
  for (size_t i = 0; i + 1 < table.size(); i += 2) {
    const auto change = static_cast<int8_t>(table[i + 1]);
    end += std::to_integer<int64_t>(table[i]);
    if (change != kNoLine) line += change;
    if (instruction < end) return change == kNoLine ? 0 : static_cast<int>(line);
  }
  return 0;
}

// Removes and returns a number in groups of six bits, lowest group first; nullopt if the number is
// too long or truncated.
std::optional<uint32_t> TakeVarint(std::span<const std::byte>& table) {
  constexpr unsigned kGroupBits = 6, kGroupMask = 0x3f, kMore = 0x40, kMaxShift = 24;
  uint32_t value = 0;
  for (unsigned shift = 0; shift <= kMaxShift && !table.empty(); shift += kGroupBits) {
    const auto byte = std::to_integer<uint32_t>(table.front());
    table = table.subspan(1);
    value |= (byte & kGroupMask) << shift;
    if ((byte & kMore) == 0) return value;
  }
  return std::nullopt;
}

int64_t Signed(uint32_t value) {
  const auto magnitude = static_cast<int64_t>(value >> 1);
  return (value & 1) != 0 ? -magnitude : magnitude;
}

// Returns the line in a table of PEP 657. An entry begins with a byte whose highest bit is set and
// that contains kind and length; the entry's other bytes do not have that bit.
int FindInLocations(std::span<const std::byte> table, int64_t line, int64_t instruction) {
  constexpr unsigned kFirst = 0x80, kKindShift = 3, kKindMask = 15, kLengthMask = 7;
  constexpr unsigned kOneLine = 10, kNoColumns = 13, kLong = 14, kNothing = 15;
  int64_t end = 0;
  while (!table.empty()) {
    const auto first = std::to_integer<unsigned>(table.front());
    table = table.subspan(1);
    if ((first & kFirst) == 0) continue;  // a further byte of the previous entry
    const unsigned kind = (first >> kKindShift) & kKindMask;
    end += kUnitBytes * ((first & kLengthMask) + 1);
    if (kind == kNoColumns || kind == kLong) {
      const std::optional<uint32_t> change = TakeVarint(table);
      if (!change) return 0;
      line += Signed(*change);
    } else if (kind >= kOneLine && kind != kNothing) {
      line += kind - kOneLine;
    }
    if (instruction < end) return kind == kNothing ? 0 : static_cast<int>(line);
  }
  return 0;
}

}  // namespace

int FindLine(int minor, std::span<const std::byte> table, int first_line, int64_t instruction) {
  if (instruction < 0) return first_line;
  constexpr int kRanges = 10, kLocations = 11;  // first minor versions of the two newer formats
  if (minor < kRanges) return FindInPairs(table, first_line, instruction);
  if (minor < kLocations) return FindInRanges(table, first_line, instruction);
  return FindInLocations(table, first_line, instruction);
}

}  // namespace dslaunch
