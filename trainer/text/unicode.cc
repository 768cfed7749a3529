#include "trainer/text/unicode.h"

#include <algorithm>
#include <vector>

namespace dslaunch {
namespace {

constexpr size_t kCodePoints = 0x110000;

struct PropertyRange {
  uint32_t first, last;
  uint16_t bits;
};

constexpr PropertyRange kPropertyRanges[] = {
#define PROPERTIES(first, last, bits) {first, last, bits},
#define COMBINING(first, last, combining_class)
#define DECOMPOSITION(code_point, a, b, c, d)
#define COMPOSITION(first, second, composed)
#include "trainer/text/unicode_tables.inc"
#undef PROPERTIES
#undef COMBINING
#undef DECOMPOSITION
#undef COMPOSITION
};

std::vector<uint16_t> MakeProperties() {
  std::vector<uint16_t> properties(kCodePoints);
  for (const PropertyRange& range : kPropertyRanges) {
    std::fill(&properties[range.first], &properties[range.last] + 1, range.bits);
  }
  return properties;
}

// The longest prefix of `text` that is a UTF-8 character or the beginning of one.
struct Utf8Prefix {
  size_t bytes;   // bytes of the prefix, at least 1
  bool complete;  // true if the prefix is a whole character
};

Utf8Prefix ReadUtf8(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t first = byte(0);
  if (first < 0x80) return {1, true};
  if (first < 0xC2 || first > 0xF4) return {1, false};
  const size_t size = Utf8Bytes(text[0]);
  // The second byte must exclude overlong forms, surrogates and code points above U+10FFFF, so its
  // limits depend on the first byte.
  uint8_t low = 0x80;
  uint8_t high = 0xBF;
  if (first == 0xE0) low = 0xA0;
  if (first == 0xED) high = 0x9F;
  if (first == 0xF0) low = 0x90;
  if (first == 0xF4) high = 0x8F;
  for (size_t i = 1; i < size; ++i) {
    if (i >= text.size() || byte(i) < low || byte(i) > high) return {i, false};
    low = 0x80;
    high = 0xBF;
  }
  return {size, true};
}

}  // namespace

uint16_t PropertiesOf(char32_t code_point) {
  static const std::vector<uint16_t> properties = MakeProperties();
  return code_point < kCodePoints ? properties[code_point] : uint16_t{0};
}

std::optional<size_t> FindInvalidUtf8(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const Utf8Prefix prefix = ReadUtf8(text.substr(at));
    if (!prefix.complete) return at;
    at += prefix.bytes;
  }
  return std::nullopt;
}

std::string ReplaceInvalidUtf8(std::string_view text) {
  std::string valid;
  for (size_t at = 0; at < text.size();) {
    const Utf8Prefix prefix = ReadUtf8(text.substr(at));
    valid += prefix.complete ? text.substr(at, prefix.bytes) : "\xEF\xBF\xBD";
    at += prefix.bytes;
  }
  return valid;
}

void AppendUtf8(char32_t code_point, std::string& text) {
  const auto trail = [&](int shift) {
    text += static_cast<char>(0x80 | ((code_point >> shift) & 0x3F));
  };
  if (code_point < 0x80) {
    text += static_cast<char>(code_point);
  } else if (code_point < 0x800) {
    text += static_cast<char>(0xC0 | code_point >> 6);
    trail(0);
  } else if (code_point < 0x10000) {
    text += static_cast<char>(0xE0 | code_point >> 12);
    trail(6);
    trail(0);
  } else {
    text += static_cast<char>(0xF0 | code_point >> 18);
    trail(12);
    trail(6);
    trail(0);
  }
}

}  // namespace dslaunch
