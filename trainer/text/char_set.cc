#include "trainer/text/char_set.h"

#include <algorithm>

namespace dslaunch {

void CharSet::AddRange(char32_t first, char32_t last) { ranges_.push_back({first, last}); }

void CharSet::AddProperties(uint16_t bits) { properties_ |= bits; }

void CharSet::AddAllWithout(uint16_t bits) { without_.push_back(bits); }

void CharSet::Finish() {
  for (char32_t c = 0; c < kAscii; ++c) {
    if (Compute(c)) ascii_[c / 64] |= uint64_t{1} << c % 64;
  }
}

bool CharSet::Compute(char32_t c) const {
  const uint16_t properties = PropertiesOf(c);
  bool found = (properties & properties_) != 0;
  found = found ||
          std::ranges::any_of(without_, [&](uint16_t bits) { return (properties & bits) == 0; });
  found = found || std::ranges::any_of(ranges_, [&](const Range& range) {
            return c >= range.first && c <= range.last;
          });
  return found != negated_;
}

}  // namespace dslaunch
