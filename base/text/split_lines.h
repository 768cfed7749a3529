#pragma once

#include <algorithm>
#include <string_view>
#include <vector>

namespace dslaunch {

// Returns the lines of `text` without their line endings, including a last line without one. The
// lines are views into `text`.
inline std::vector<std::string_view> SplitLines(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    lines.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

}  // namespace dslaunch
