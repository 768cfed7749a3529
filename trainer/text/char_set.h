// Represents sets of code points, such as the character classes of a pattern. Pure.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "trainer/text/unicode.h"

namespace dslaunch {

class CharSet {
 public:
  void AddRange(char32_t first, char32_t last);
  void AddProperties(uint16_t bits);  // adds code points with at least one of these properties
  void AddAllWithout(uint16_t bits);  // adds code points without any of these properties
  void Negate() { negated_ = !negated_; }
  // Prepares Contains(). Call this once, after the last change of the set.
  void Finish();

  bool Contains(char32_t c) const {
    return c < kAscii ? (ascii_[c / 64] >> c % 64 & 1) != 0 : Compute(c);
  }

 private:
  static constexpr char32_t kAscii = 128;
  struct Range {
    char32_t first, last;
  };

  bool Compute(char32_t c) const;

  std::vector<Range> ranges_;
  uint16_t properties_ = 0;
  std::vector<uint16_t> without_;
  bool negated_ = false;
  // One bit for each ASCII character, set if the set contains it.
  std::array<uint64_t, kAscii / 64> ascii_{};
};

}  // namespace dslaunch
