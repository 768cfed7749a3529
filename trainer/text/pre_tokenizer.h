// Implements the pre-tokenizers of tokenizer.json, which divide a text into words. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "trainer/text/search.h"

namespace dslaunch {

enum class SplitBehavior : uint8_t {
  kRemoved,
  kIsolated,
  kMergedWithPrevious,
  kMergedWithNext,
  kContiguous,
};

struct SplitStep {
  Search search;
  SplitBehavior behavior = SplitBehavior::kIsolated;
  bool invert = false;  // true to treat the text between matches as the matches
};
struct DigitsStep {
  bool individual = false;  // true if each digit is a word, false if each run of digits is
};
enum class PrependScheme : uint8_t { kAlways, kFirst, kNever };
struct MetaspaceStep {
  std::string replacement;  // single character that replaces each space
  PrependScheme prepend = PrependScheme::kAlways;
  bool split = true;  // true to also divide words before each replacement
};
struct ByteLevelStep {
  bool add_prefix_space = false;
  // Pattern that divides words; nullopt to keep words whole.
  std::optional<Pattern> pattern = std::nullopt;
};
using PreTokenizerStep = std::variant<SplitStep, DigitsStep, MetaspaceStep, ByteLevelStep>;

// A text and the words into which it is divided.
struct Words {
  std::string text;               // text in UTF-8
  std::vector<TextRange> ranges;  // non-empty words in their order in the text
};

// Applies each step in turn to split the words further. A step that prepends text is skipped if the
// text continues another text.
void PreTokenize(const std::vector<PreTokenizerStep>& steps, TextStart start, Words& words);

}  // namespace dslaunch
