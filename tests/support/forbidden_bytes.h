// Finds bytes that must never reach a terminal, without using the code under test.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace dslaunch {

// Describes the first control character or invalid UTF-8 in `shown`; returns "" if there is none.
// Lines may end with "\n" or "\r\n".
inline std::string FindForbidden(std::string_view shown) {
  for (size_t i = 0; i < shown.size();) {
    const auto byte = [&](size_t at) {
      return at < shown.size() ? static_cast<unsigned char>(shown[at]) : 0u;
    };
    const std::string where = " at byte " + std::to_string(i);
    const unsigned lead = byte(i);
    const size_t size = lead < 0x80 ? 1 : lead < 0xc2 ? 0 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
    if (size == 0 || lead > 0xf4) return "no UTF-8" + where;
    uint32_t point = size == 1 ? lead : lead & (0xffu >> (size + 1));
    for (size_t k = 1; k < size; ++k) {
      if ((byte(i + k) & 0xc0) != 0x80) return "cut UTF-8" + where;
      point = point << 6 | (byte(i + k) & 0x3f);
    }
    if ((size == 3 && point < 0x800) || (size == 4 && point < 0x10000) || point > 0x10ffff ||
        (point >= 0xd800 && point < 0xe000))
      return "bad UTF-8" + where;
    const bool ends_line = point == '\n' || (point == '\r' && byte(i + 1) == '\n');
    const bool is_control = (point < 0x20 && point != '\t') || (point >= 0x7f && point < 0xa0);
    const bool is_unseen = (point >= 0x200b && point <= 0x200f) || point == 0x61c ||
                           (point >= 0x2028 && point <= 0x202e) ||
                           (point >= 0x2060 && point <= 0x206f) || point == 0xfeff;
    if ((is_control && !ends_line) || is_unseen) return "U+" + std::to_string(point) + where;
    i += size;
  }
  return "";
}

// Fragments of the output of hostile or careless programs.
inline const std::string_view kHostilePieces[] = {"\x1b[2J\x1b[H",
                                                  "\x1b]0;title\x07",
                                                  "\x1b]52;c;cm0gLXJm\x1b\\",
                                                  "\x1b[31m",
                                                  "\x1b[0m",
                                                  "\x1b[1A\x1b[K",
                                                  "\x1bP+q544e\x1b\\",
                                                  "\x1b_apc\x1b\\",
                                                  "\x1b[?1049h",
                                                  "\x1b[6n",
                                                  "\x1b"
                                                  "c",
                                                  "\x1b",
                                                  "\x1b[",
                                                  "\x1b]",
                                                  "\x9b"
                                                  "31m",
                                                  "\x90q\x9c",
                                                  "\xc2\x9b"
                                                  "2J",
                                                  "\xe2\x80\xae",
                                                  "\xe2\x81\xa6",
                                                  "\xe2\x80\x8b",
                                                  "\xe2\x80\x8f",
                                                  "\xef\xbb\xbf",
                                                  "\xff\xfe",
                                                  "\xe2\x82",
                                                  "\xf0\x9f",
                                                  "\xed\xa0\x80",
                                                  "\x07",
                                                  "\x08\x08",
                                                  "\x0e\x0f",
                                                  "\x7f",
                                                  "\x0c\x0b",
                                                  "\xc3\xb6",
                                                  "\xf0\x9f\x98\x80",
                                                  "\\",
                                                  "m",
                                                  "text ",
                                                  "\t",
                                                  ";",
                                                  "1"};

}  // namespace dslaunch
