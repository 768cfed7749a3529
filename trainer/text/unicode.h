// Decodes UTF-8, and returns properties of code points as the tokenizers package defines them.
// Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace dslaunch {

// Bits for the properties of a code point. unicode_tables.inc uses the same bits.
enum UnicodeProperty : uint16_t {
  kUpperLetter = 1 << 0,     // \p{Lu}
  kLowerLetter = 1 << 1,     // \p{Ll}
  kTitleLetter = 1 << 2,     // \p{Lt}
  kModifierLetter = 1 << 3,  // \p{Lm}
  kOtherLetter = 1 << 4,     // \p{Lo}
  kNumber = 1 << 5,          // \p{N}
  kMark = 1 << 6,            // \p{M}
  kPunctuation = 1 << 7,     // \p{P}
  kSymbol = 1 << 8,          // \p{S}
  kWhiteSpace = 1 << 9,      // \s
  // A digit for the pre-tokenizer Digits, whose Unicode version is newer than the version of \p{N}.
  kDigit = 1 << 10,
  kLetter = kUpperLetter | kLowerLetter | kTitleLetter | kModifierLetter | kOtherLetter,
};

// Returns the UnicodeProperty bits of a code point; 0 without properties.
uint16_t PropertiesOf(char32_t code_point);

// Returns the position of the first byte that is not part of a valid UTF-8 character (RFC 3629);
// nullopt if all of `text` is UTF-8.
std::optional<size_t> FindInvalidUtf8(std::string_view text);

// Returns `text` with each maximal invalid part of a character replaced by U+FFFD, as decoders of
// Python and Rust do.
std::string ReplaceInvalidUtf8(std::string_view text);

// Returns whether Python's str.strip removes the code point. In addition to \s of the tokenizers
// package, str.strip removes four control characters.
inline bool IsPythonSpace(char32_t code_point) {
  return (code_point >= 0x1C && code_point <= 0x1F) ||
         (PropertiesOf(code_point) & kWhiteSpace) != 0;
}

void AppendUtf8(char32_t code_point, std::string& text);

// Returns the size in bytes of the UTF-8 character whose first byte is `first`.
inline size_t Utf8Bytes(char first) {
  const auto byte = static_cast<uint8_t>(first);
  return byte < 0x80 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}

// Returns the code point of the character that begins at `text[at]`. Precondition: `text` is UTF-8,
// and a character begins at `at`.
inline char32_t CodePointAt(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[at + i]); };
  const uint8_t first = byte(0);
  if (first < 0x80) return first;
  if (first < 0xE0) return (first & 0x1Fu) << 6 | (byte(1) & 0x3Fu);
  if (first < 0xF0) return (first & 0x0Fu) << 12 | (byte(1) & 0x3Fu) << 6 | (byte(2) & 0x3Fu);
  return (first & 0x07u) << 18 | (byte(1) & 0x3Fu) << 12 | (byte(2) & 0x3Fu) << 6 |
         (byte(3) & 0x3Fu);
}

}  // namespace dslaunch
