#include "trainer/text/nfc.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "trainer/text/unicode.h"

namespace dslaunch {
namespace {

struct CombiningRange {
  char32_t first, last;
  uint8_t combining_class;
};
struct Decomposition {
  char32_t code_point;
  std::array<char32_t, 4> parts;  // code points of the decomposition, padded with zeros
};
struct Composition {
  char32_t first, second, composed;
};

#define PROPERTIES(first, last, bits)
#define COMBINING(first, last, combining_class)
#define DECOMPOSITION(code_point, a, b, c, d)
#define COMPOSITION(first, second, composed)

#undef COMBINING
#define COMBINING(first, last, combining_class) {first, last, combining_class},
constexpr CombiningRange kCombining[] = {
#include "trainer/text/unicode_tables.inc"
};
#undef COMBINING
#define COMBINING(first, last, combining_class)

#undef DECOMPOSITION
#define DECOMPOSITION(code_point, a, b, c, d) {code_point, {a, b, c, d}},
constexpr Decomposition kDecompositions[] = {
#include "trainer/text/unicode_tables.inc"
};
#undef DECOMPOSITION
#define DECOMPOSITION(code_point, a, b, c, d)

#undef COMPOSITION
#define COMPOSITION(first, second, composed) {first, second, composed},
constexpr Composition kCompositions[] = {
#include "trainer/text/unicode_tables.inc"
};
#undef COMPOSITION
#undef PROPERTIES
#undef COMBINING
#undef DECOMPOSITION

// Code points below kFirstMark are never moved, and never composed with the code point before them.
// Code points below kFirstDecomposed have no decomposition.
constexpr char32_t kFirstMark = 0x300;
constexpr char32_t kFirstDecomposed = 0xC0;

// Hangul syllables are composed and decomposed by arithmetic (Unicode Standard, section 3.12).
constexpr char32_t kSyllables = 0xAC00;
constexpr char32_t kLeads = 0x1100;
constexpr char32_t kVowels = 0x1161;
// One less than the first trailing consonant (the code point of no consonant).
constexpr char32_t kTails = 0x11A7;
constexpr char32_t kLeadCount = 19;
constexpr char32_t kVowelCount = 21;
constexpr char32_t kTailCount = 28;
constexpr char32_t kSyllableCount = kLeadCount * kVowelCount * kTailCount;

uint8_t CombiningClass(char32_t c) {
  if (c < kFirstMark) return 0;
  const auto* range =
      std::upper_bound(std::begin(kCombining), std::end(kCombining), c,
                       [](char32_t at, const CombiningRange& later) { return at < later.first; });
  return range != kCombining && c <= range[-1].last ? range[-1].combining_class : uint8_t{0};
}

void Decompose(char32_t c, std::u32string& out) {
  if (c < kFirstDecomposed) {
    out += c;
    return;
  }
  if (c - kSyllables < kSyllableCount) {
    const char32_t syllable = c - kSyllables;
    out += kLeads + syllable / (kVowelCount * kTailCount);
    out += kVowels + syllable / kTailCount % kVowelCount;
    if (syllable % kTailCount != 0) out += kTails + syllable % kTailCount;
    return;
  }
  const auto* found =
      std::lower_bound(std::begin(kDecompositions), std::end(kDecompositions), c,
                       [](const Decomposition& one, char32_t at) { return one.code_point < at; });
  if (found == std::end(kDecompositions) || found->code_point != c) {
    out += c;
    return;
  }
  for (const char32_t part : found->parts) {
    if (part != 0) out += part;
  }
}

std::optional<char32_t> Compose(char32_t first, char32_t second) {
  if (first - kLeads < kLeadCount && second - kVowels < kVowelCount) {
    return kSyllables + ((first - kLeads) * kVowelCount + (second - kVowels)) * kTailCount;
  }
  if (first - kSyllables < kSyllableCount && (first - kSyllables) % kTailCount == 0 &&
      second > kTails && second - kTails < kTailCount) {
    return first + (second - kTails);
  }
  const auto* found =
      std::lower_bound(std::begin(kCompositions), std::end(kCompositions), std::pair(first, second),
                       [](const Composition& one, const std::pair<char32_t, char32_t>& pair) {
                         return std::pair(one.first, one.second) < pair;
                       });
  if (found == std::end(kCompositions) || found->first != first || found->second != second) {
    return std::nullopt;
  }
  return found->composed;
}

// Sorts each run of marks by combining class; the order of marks within a class is kept.
void SortMarks(std::u32string& text) {
  for (size_t at = 0; at < text.size();) {
    if (CombiningClass(text[at]) == 0) {
      ++at;
      continue;
    }
    size_t end = at;
    while (end < text.size() && CombiningClass(text[end]) != 0) ++end;
    std::stable_sort(text.begin() + static_cast<std::ptrdiff_t>(at),
                     text.begin() + static_cast<std::ptrdiff_t>(end),
                     [](char32_t a, char32_t b) { return CombiningClass(a) < CombiningClass(b); });
    at = end;
  }
}

// Composes each starter with the following marks and starters that are not blocked by others.
void ComposeAll(std::u32string& text) {
  std::optional<size_t> starter;
  // Combining class of the last kept character; -1 if there is no such character.
  int last_class = -1;
  size_t size = 0;
  for (const char32_t c : text) {
    const int combining_class = CombiningClass(c);
    if (starter && last_class < combining_class) {
      if (const std::optional<char32_t> composed = Compose(text[*starter], c)) {
        text[*starter] = *composed;
        continue;
      }
    }
    if (combining_class == 0) {
      starter = size;
      last_class = -1;
    } else {
      last_class = combining_class;
    }
    text[size++] = c;
  }
  text.resize(size);
}

}  // namespace

std::string ToNfc(std::string_view text) {
  // A text whose code points are all below U+0300 is already in form C, so it is returned
  // unchanged.
  const bool latin =
      std::ranges::all_of(text, [](char c) { return static_cast<uint8_t>(c) < 0xCC; });
  if (latin) return std::string(text);
  std::u32string points;
  points.reserve(text.size());
  for (size_t at = 0; at < text.size(); at += Utf8Bytes(text[at])) {
    Decompose(CodePointAt(text, at), points);
  }
  SortMarks(points);
  ComposeAll(points);
  std::string normal;
  normal.reserve(text.size());
  for (const char32_t c : points) AppendUtf8(c, normal);
  return normal;
}

}  // namespace dslaunch
