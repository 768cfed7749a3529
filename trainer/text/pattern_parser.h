// Parses the regular expressions of Pattern into trees. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string_view>
#include <vector>

#include "trainer/text/char_set.h"

namespace dslaunch {

struct PatternNode {
  enum class Kind : uint8_t {
    kSet,        // matches one character of `set`
    kSequence,   // matches all children, in order
    kAlternate,  // matches one of the children
    kRepeat,     // matches the only child, `least` to `most` times
    kNot,        // matches the empty string if the only child does not match
  };
  static constexpr uint32_t kNoLimit = std::numeric_limits<uint32_t>::max();

  Kind kind = Kind::kSequence;
  std::vector<PatternNode> children;
  CharSet set;
  uint32_t least = 1;
  uint32_t most = 1;
  bool possessive = false;  // true if the repetition does not give back characters
};

// Parses `pattern`. Throws TrainError kBadInput, with the offset in bytes, for everything that
// Pattern does not accept.
PatternNode ParsePattern(std::string_view pattern);

// Returns whether `node` can match the empty string.
bool MayBeEmpty(const PatternNode& node);

}  // namespace dslaunch
