// The pre-tokenizers of tokenizer.json, which divide a text into words. Pure.
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
  bool invert = false;  // text between matches counts as a match, and matches as text between
};
struct DigitsStep {
  bool individual = false;  // each digit is a word; otherwise each run of digits is one
};
enum class PrependScheme : uint8_t { kAlways, kFirst, kNever };
struct MetaspaceStep {
  std::string replacement;  // one character, which stands for a space
  PrependScheme prepend = PrependScheme::kAlways;
  bool split = true;  // also split words before each replacement
};
struct ByteLevelStep {
  bool add_prefix_space = false;
  std::optional<Pattern> pattern = std::nullopt;  // divides words if present
};
using PreTokenizerStep = std::variant<SplitStep, DigitsStep, MetaspaceStep, ByteLevelStep>;

// A text and its words.
struct Words {
  std::string text;               // UTF-8
  std::vector<TextRange> ranges;  // in order, none of them empty
};

// Divides the words by each step in turn. Nothing is prepended to a text that continues another.
void PreTokenize(const std::vector<PreTokenizerStep>& steps, TextStart start, Words& words);

}  // namespace dslaunch
