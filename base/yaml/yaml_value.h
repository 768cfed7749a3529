// A YAML document as a tree of values with their places. Bounded in depth and size, so that no file
// of a user costs much. Uses yaml-cpp.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace dslaunch {

struct YamlValue;
using YamlPtr = std::shared_ptr<const YamlValue>;  // an alias is the same value again

struct YamlValue {
  enum class Kind { kNull, kScalar, kList, kMap };
  Kind kind = Kind::kNull;
  int line = 0, column = 0;    // counted from 1
  std::string text;            // kScalar
  bool plain = false;          // kScalar: neither quoted nor tagged
  std::vector<YamlPtr> items;  // kList
  std::vector<std::pair<YamlPtr, YamlPtr>>
      pairs;          // kMap, in the order of the file; keys are kScalar
  size_t bytes = 0;   // size with aliases expanded
  size_t height = 0;  // levels of lists and maps, itself included
};

// Why a text is not such a document.
struct YamlProblem {
  int line = 0, column = 0;  // counted from 1; 0 for the whole text
  std::string token;         // the words at that place
  std::string what;
  bool syntax = false;  // found by yaml-cpp
};

struct YamlLimits {
  size_t depth;  // levels of lists and maps
  size_t bytes;  // size of all values with aliases expanded, each counted as its text and 16 bytes
};

// Returns the document; null if the text is empty, and null with `problem` set if it is invalid.
// Tags (except the string tag) and several documents are problems. Repeated keys are not.
YamlPtr ParseYamlValue(std::string_view text, const YamlLimits& limits, YamlProblem* problem);

}  // namespace dslaunch
