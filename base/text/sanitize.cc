#include "base/text/sanitize.h"

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <cstdio>
#include <utility>

#include "base/text/split_lines.h"

namespace dslaunch {
namespace {

constexpr unsigned char kEscape = 0x1b;
constexpr std::string_view kReplacement = "\xef\xbf\xbd";

unsigned char At(std::string_view text, size_t i) { return static_cast<unsigned char>(text[i]); }

// Returns the size of the valid UTF-8 character (ASCII included) at the start of `text`; 0 if the
// text does not start with one.
size_t Utf8Size(std::string_view text) {
  const unsigned char lead = At(text, 0);
  if (lead < 0x80) return 1;
  const size_t size = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4 || text.size() < size) return 0;
  for (size_t i = 1; i < size; ++i) {
    if ((At(text, i) & 0xc0) != 0x80) return 0;
  }
  const unsigned char second = At(text, 1);
  const bool too_long = (lead == 0xe0 && second < 0xa0) || (lead == 0xf0 && second < 0x90);
  const bool surrogate = lead == 0xed && second >= 0xa0;
  const bool too_large = lead == 0xf4 && second >= 0x90;
  return too_long || surrogate || too_large ? 0 : size;
}

// Returns the size of the escape sequence (ECMA-48) at the start of `text`. Precondition: `text`
// begins with ESC.
size_t EscapeSize(std::string_view text) {
  size_t i = 1;
  if (i == text.size()) return i;
  const unsigned char kind = At(text, i);
  if (kind == '[') {  // control sequence: parameters and a final byte
    for (++i; i < text.size() && At(text, i) >= 0x20 && At(text, i) <= 0x3f;) ++i;
    return i < text.size() && At(text, i) >= 0x40 && At(text, i) <= 0x7e ? i + 1 : i;
  }
  if (kind == ']' || kind == 'P' || kind == 'X' || kind == '^' || kind == '_') {
    for (++i; i < text.size(); ++i) {  // control string, which BEL or ESC backslash ends
      if (At(text, i) == 0x07) return i + 1;
      if (At(text, i) == kEscape) return i + 1 < text.size() && text[i + 1] == '\\' ? i + 2 : i;
    }
    return i;
  }
  while (i < text.size() && At(text, i) >= 0x20 && At(text, i) <= 0x2f) ++i;
  return i < text.size() && At(text, i) >= 0x30 && At(text, i) <= 0x7e ? i + 1 : i;
}

// Returns the code point of a valid multi-byte UTF-8 character of `size` bytes.
uint32_t CodePoint(std::string_view character, size_t size) {
  uint32_t point = At(character, 0) & (0xffu >> (size + 1));
  for (size_t i = 1; i < size; ++i) point = point << 6 | (At(character, i) & 0x3fu);
  return point;
}

// Returns whether the code point is a control character, or an invisible character that reorders or
// breaks lines or makes different texts look the same.
bool IsInvisible(uint32_t point) {
  struct Range {
    uint32_t first, last;
  };
  static constexpr Range kRanges[] = {
      {0x80, 0x9f},        // C1 controls
      {0xad, 0xad},        // soft hyphen
      {0x34f, 0x34f},      // combining grapheme joiner
      {0x61c, 0x61c},      // Arabic letter mark
      {0x115f, 0x1160},    // Hangul fillers
      {0x17b4, 0x17b5},    // Khmer inherent vowels
      {0x180b, 0x180f},    // Mongolian selectors and the vowel separator
      {0x200b, 0x200f},    // zero-width space and joiners, left-to-right and right-to-left marks
      {0x2028, 0x202e},    // line and paragraph separators, embeddings, overrides
      {0x2060, 0x206f},    // word joiner, invisible operators, isolates
      {0x3164, 0x3164},    // Hangul filler
      {0xfeff, 0xfeff},    // byte order mark
      {0xffa0, 0xffa0},    // half-width Hangul filler
      {0xfff9, 0xfffb},    // interlinear annotations
      {0x1d173, 0x1d17a},  // musical controls
      {0xe0000, 0xe0fff},  // tags and selectors
  };
  return std::ranges::any_of(
      kRanges, [&](const Range& range) { return point >= range.first && point <= range.last; });
}

// Returns whether the escape sequence only selects colors or text attributes. Attributes that hide
// text do not count.
bool IsColor(std::string_view sequence) {
  constexpr size_t kMaxColorBytes = 64;
  if (sequence.size() < 3 || sequence.size() > kMaxColorBytes || sequence[1] != '[' ||
      sequence.back() != 'm')
    return false;
  int skip = 0;  // number of parameters to skip after 38, 48 or 58, which begin a color
  bool is_kind = false;
  int number = 0;
  for (const char c : sequence.substr(2)) {
    if (c >= '0' && c <= '9') {
      number = number * 10 + (c - '0');
      if (number > 255) return false;
      continue;
    }
    if (c != ';' && c != ':' && c != 'm') return false;
    if (std::exchange(is_kind, false)) {
      skip = number == 5 ? 1 : number == 2 ? 3 : 0;
    } else if (skip > 0) {
      --skip;
    } else if (number == 8) {
      return false;
    } else {
      is_kind = number == 38 || number == 48 || number == 58;
    }
    number = 0;
  }
  return true;
}

std::string Sanitized(std::string_view line, bool keep_colors) {
  constexpr std::string_view kReset = "\x1b[0m";
  std::string out;
  out.reserve(line.size());
  bool has_color = false;
  while (!line.empty()) {
    size_t size = Utf8Size(line);
    const unsigned char c = At(line, 0);
    if (size == 0) {
      out += kReplacement;
      size = 1;
    } else if (c == kEscape) {
      size = EscapeSize(line);
      const std::string_view sequence = line.substr(0, size);
      if (keep_colors && IsColor(sequence)) {
        out += sequence;
        has_color = sequence != kReset && sequence != "\x1b[m";
      }
    } else if (c == '\t' || (c >= 0x20 && c < 0x7f)) {
      out += line[0];
    } else if (size > 1 && !IsInvisible(CodePoint(line, size))) {
      out += line.substr(0, size);
    }
    line.remove_prefix(size);
  }
  if (has_color) out += kReset;
  return out;
}

}  // namespace

std::string SanitizeForTerminal(std::string_view line) {
  return Sanitized(line, /*keep_colors=*/false);
}

std::string SanitizeKeepingColors(std::string_view line) {
  return Sanitized(line, /*keep_colors=*/true);
}

std::string SanitizeMessage(std::string_view text) {
  std::string out;
  for (const std::string_view line : SplitLines(text)) {
    const std::string shown = SanitizeForTerminal(line);
    if (!out.empty()) out += shown.starts_with("  ") ? "\n" : "\n  ";
    out += shown;
  }
  return out;
}

std::string WithoutEscapes(std::string_view line) {
  std::string out;
  while (!line.empty()) {
    const size_t escape = std::min(line.find(static_cast<char>(kEscape)), line.size());
    out += line.substr(0, escape);
    line.remove_prefix(escape);
    if (!line.empty()) line.remove_prefix(EscapeSize(line));
  }
  return out;
}

bool IsUtf8(std::string_view text) {
  while (!text.empty()) {
    const size_t size = Utf8Size(text);
    if (size == 0) return false;
    text.remove_prefix(size);
  }
  return true;
}

std::string Truncate(std::string_view text, size_t max_bytes) {
  // Bytes beyond the limit would be cut anyway, so they are not sanitized.
  std::string shown = SanitizeForTerminal(text.substr(0, max_bytes));
  size_t end = std::min(shown.size(), max_bytes);
  while (end < shown.size() && end > 0 && (At(shown, end) & 0xc0) == 0x80) --end;
  const bool is_cut = end < shown.size() || text.size() > max_bytes;
  shown.resize(end);
  return is_cut ? shown + "..." : shown;
}

std::string Quoted(std::string_view text) { return "'" + Truncate(text) + "'"; }

std::string ShellWord(std::string_view text) {
  const auto plain = [](unsigned char c) {
    return std::isalnum(c) != 0 ||
           std::string_view("@%+=:,./_-").find(static_cast<char>(c)) != std::string_view::npos;
  };
  if (!text.empty() && std::ranges::all_of(text, plain)) return std::string(text);
  const bool printable =
      SanitizeForTerminal(text) == text && text.find('\t') == std::string_view::npos;
  std::string word = printable ? "'" : "$'";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '\'') {
      word += printable ? "'\\''" : "\\'";
    } else if (printable) {
      word += c;
    } else if (c == '\n') {
      word += "\\n";
    } else if (c == '\t') {
      word += "\\t";
    } else if (c == '\\') {
      word += "\\\\";
    } else if (byte >= 0x20 && byte < 0x7f) {
      word += c;
    } else {
      char escaped[8];
      std::snprintf(escaped, sizeof escaped, "\\x%02x", byte);
      word += escaped;
    }
  }
  return word + "'";
}

std::string CommandLine(const std::vector<std::string>& words) {
  std::string line;
  for (const std::string& word : words) line += (line.empty() ? "" : " ") + ShellWord(word);
  return line;
}

}  // namespace dslaunch
