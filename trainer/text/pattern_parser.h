// Reads a regular expression into a tree. Pure.
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
    kSet,        // one character of `set`
    kSequence,   // all children, in order
    kAlternate,  // one child
    kRepeat,     // the only child, `least` to `most` times
    kNot,        // nothing, where the only child does not match
  };
  static constexpr uint32_t kNoLimit = std::numeric_limits<uint32_t>::max();

  Kind kind = Kind::kSequence;
  std::vector<PatternNode> children;
  CharSet set;
  uint32_t least = 1;
  uint32_t most = 1;
  bool possessive = false;  // a repetition that gives nothing back
};

// Throws TrainError kBadInput with the offset in bytes for what Pattern does not accept.
PatternNode ParsePattern(std::string_view pattern);

// Returns whether `node` matches the empty string somewhere.
bool MayBeEmpty(const PatternNode& node);

}  // namespace dslaunch
