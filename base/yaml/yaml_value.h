// Parses a YAML document as a tree of values with their places. Depth and size are bounded, so that
// no file of a user costs much. Uses yaml-cpp.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace dslaunch {

struct YamlValue;
// Shared, because an alias points to the value of its anchor.
using YamlPtr = std::shared_ptr<const YamlValue>;

struct YamlValue {
  enum class Kind { kNull, kScalar, kList, kMap };
  Kind kind = Kind::kNull;
  int line = 0, column = 0;    // place, counted from 1
  std::string text;            // text of a kScalar
  bool plain = false;          // true for a kScalar that is neither quoted nor tagged
  std::vector<YamlPtr> items;  // items of a kList
  // Pairs of a kMap in the order of the file. Keys are kScalar.
  std::vector<std::pair<YamlPtr, YamlPtr>> pairs;
  size_t bytes = 0;   // size of the value with aliases expanded
  size_t height = 0;  // number of levels of lists and maps, including this value
};

// The reason why a text is not a valid document.
struct YamlProblem {
  int line = 0, column = 0;  // place, counted from 1; 0 for the whole text
  std::string token;         // words at that place
  std::string what;
  bool syntax = false;  // true if yaml-cpp found the problem
};

struct YamlLimits {
  size_t depth;  // limit of the levels of lists and maps
  // Limit of the size of all values with aliases expanded. Each counts as its text and 16 bytes.
  size_t bytes;
};

// Returns the document. Returns nullptr if the text is empty, and nullptr with `problem` set if it
// is invalid. Tags (except the string tag) and several documents are problems; repeated keys are
// not.
YamlPtr ParseYamlValue(std::string_view text, const YamlLimits& limits, YamlProblem* problem);

}  // namespace dslaunch
