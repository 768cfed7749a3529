#include "cli/output/shown_width.h"

#include <algorithm>
#include <cstdint>
#include <utility>

namespace dslaunch {
namespace {

constexpr char kEscapeByte = '\x1b';
constexpr int kTabColumns = 8;

// Returns the number of columns of a character: 0 for characters without a width, 2 for wide
// characters (East Asian scripts, emoji), else 1.
int WidthOf(uint32_t point) {
  constexpr std::pair<uint32_t, uint32_t> kNone[] = {
      {0x300, 0x36f},   {0x483, 0x489},   {0x591, 0x5bd},   {0x610, 0x61a},  {0x64b, 0x65f},
      {0x93c, 0x93c},   {0x94d, 0x94d},   {0xe31, 0xe31},   {0xe34, 0xe3a},  {0x1ab0, 0x1aff},
      {0x1dc0, 0x1dff}, {0x20d0, 0x20ff}, {0xfe00, 0xfe0f}, {0xfe20, 0xfe2f}};
  constexpr std::pair<uint32_t, uint32_t> kWide[] = {
      {0x1100, 0x115f},  {0x231a, 0x231b},   {0x23e9, 0x23ec},   {0x2614, 0x2615},
      {0x26a1, 0x26a1},  {0x2705, 0x2705},   {0x274c, 0x274c},   {0x2e80, 0xa4cf},
      {0xac00, 0xd7a3},  {0xf900, 0xfaff},   {0xfe30, 0xfe6f},   {0xff00, 0xff60},
      {0xffe0, 0xffe6},  {0x1f300, 0x1f64f}, {0x1f680, 0x1f6ff}, {0x1f900, 0x1faff},
      {0x20000, 0x3fffd}};
  const auto is_in = [point](const auto& range) {
    return point >= range.first && point <= range.second;
  };
  if (std::ranges::any_of(kNone, is_in)) return 0;
  return std::ranges::any_of(kWide, is_in) ? 2 : 1;
}

// A part of a line: a character, or a colour sequence.
struct Piece {
  size_t bytes = 1;
  int width = 1;
};

Piece FirstOf(std::string_view line, int column) {
  const auto lead = static_cast<unsigned char>(line.front());
  if (line.front() == kEscapeByte) {
    const size_t end = line.find('m');
    return {end == line.npos ? line.size() : end + 1, 0};
  }
  if (line.front() == '\t') return {1, kTabColumns - column % kTabColumns};
  if (lead < 0x80) return {};
  const size_t size = std::min<size_t>(line.size(), lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2);
  uint32_t point = lead & (0xffu >> (size + 1));
  for (size_t i = 1; i < size; ++i)
    point = point << 6 | (static_cast<unsigned char>(line[i]) & 0x3fu);
  return {size, WidthOf(point)};
}

}  // namespace

int ShownWidth(std::string_view line) {
  int width = 0;
  while (!line.empty()) {
    const Piece piece = FirstOf(line, width);
    width += piece.width;
    line.remove_prefix(piece.bytes);
  }
  return width;
}

std::string FitToWidth(std::string_view line, int columns) {
  int width = 0;
  bool has_color = false;
  size_t bytes = 0;
  while (bytes < line.size()) {
    const Piece piece = FirstOf(line.substr(bytes), width);
    if (width + piece.width > std::max(columns - 1, 0))
      return std::string(line.substr(0, bytes)) + (has_color ? "\x1b[0m" : "");
    has_color = has_color || line[bytes] == kEscapeByte;
    width += piece.width;
    bytes += piece.bytes;
  }
  return std::string(line);
}

}  // namespace dslaunch
