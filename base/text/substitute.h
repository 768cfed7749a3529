// Replaces placeholders in a text.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace dslaunch {

// Returns `text` with every occurrence of each name replaced by its value. Applies the pairs in
// order.
inline std::string Substitute(std::string_view text,
                              const std::vector<std::pair<std::string_view, std::string>>& values) {
  std::string result(text);
  for (const auto& [name, value] : values) {
    for (size_t at = result.find(name); at != std::string::npos;
         at = result.find(name, at + value.size())) {
      result.replace(at, name.size(), value);
    }
  }
  return result;
}

}  // namespace dslaunch
