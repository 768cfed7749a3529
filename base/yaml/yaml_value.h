// Parses a YAML document into a tree of values with their positions. Depth and size are limited, so
// that no file can use much time or memory. Uses yaml-cpp.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace dslaunch {

struct YamlValue;
// A pointer to a value. Values are shared, because an alias refers to the value of its anchor.
using YamlPtr = std::shared_ptr<const YamlValue>;

struct YamlValue {
  enum class Kind { kNull, kScalar, kList, kMap };
  Kind kind = Kind::kNull;
  int line = 0, column = 0;    // position in the file, counted from 1
  std::string text;            // text if the value is a kScalar
  bool plain = false;          // whether the value is a kScalar that is neither quoted nor tagged
  std::vector<YamlPtr> items;  // items if the value is a kList
  // Keys and values of a kMap, in the order of the file. Keys are kScalar.
  std::vector<std::pair<YamlPtr, YamlPtr>> pairs;
  size_t bytes = 0;   // size of the value after aliases are expanded
  size_t height = 0;  // number of levels of lists and maps, including this value
};

// The reason why a text is not a valid document.
struct YamlProblem {
  int line = 0, column = 0;  // position of the problem, from 1; 0 for the whole text
  std::string token;         // text at the position of the problem
  std::string what;
  bool syntax = false;  // whether yaml-cpp itself found the problem
};

struct YamlLimits {
  size_t depth;  // maximum number of levels of lists and maps
  // Limit of the total size of all values after aliases are expanded. Each value counts as the size
  // of its text plus 16 bytes.
  size_t bytes;
};

// Returns the document. Returns nullptr if the text is empty. Returns nullptr and sets `problem` if
// the text is invalid or exceeds `limits`. Tags (except the string tag) and several documents are
// invalid; repeated keys are not.
YamlPtr ParseYamlValue(std::string_view text, const YamlLimits& limits, YamlProblem* problem);

}  // namespace dslaunch
