// Converts the bytes of one input into the choices of a test: the kinds, the order and the cuts of
// events. Every sequence of bytes is valid, and short sequences make few choices.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>

namespace dslaunch {

class Input {
 public:
  explicit Input(std::string_view bytes) : rest_(bytes) {}

  bool empty() const { return rest_.empty(); }

  // Takes one byte. Returns 0 at the end of the input; so do all functions that return numbers.
  uint8_t Byte() {
    if (rest_.empty()) return 0;
    const char byte = rest_.front();
    rest_.remove_prefix(1);
    return static_cast<uint8_t>(byte);
  }

  size_t Below(size_t bound) { return Byte() % bound; }
  bool Flag() { return Byte() % 2 == 1; }

  // Takes one byte for small numbers and for the limits of types, and more bytes for other numbers.
  uint64_t Number() {
    static constexpr uint64_t kEnds[] = {0x7f,       0xff,       0x7fff,     0xffff,
                                         0x7fffffff, 0x80000000, 0xffffffff, 0x100000000,
                                         INT64_MAX,  1ull << 63, UINT64_MAX, UINT64_MAX / 1000};
    const uint8_t first = Byte();
    if (first >= 244) return kEnds[first - 244];
    const int more = first < 220 ? 0 : first < 232 ? 1 : first < 240 ? 3 : 7;
    uint64_t number = more == 0 ? first : 0;
    for (int i = 0; i < more; ++i) number = number << 8 | Byte();
    return number;
  }
  uint32_t Number32() { return static_cast<uint32_t>(Number()); }

  // Takes a length in one byte, and that many bytes; fewer at the end of the input.
  std::string_view Text() {
    const size_t wanted = Byte();
    const size_t length = std::min(wanted, rest_.size());
    const std::string_view text = rest_.substr(0, length);
    rest_.remove_prefix(length);
    return text;
  }

  // Takes all remaining bytes.
  std::string_view Rest() {
    const std::string_view rest = rest_;
    rest_ = {};
    return rest;
  }

 private:
  std::string_view rest_;
};

}  // namespace dslaunch
