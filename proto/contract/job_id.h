// The form of a job id.
#pragma once

#include <string_view>

namespace dslaunch {

// Returns whether the text consists only of digits, a to f and '-', as in ids made by dslaunch:
// safe in paths and commands.
inline bool IsJobId(std::string_view text) {
  constexpr size_t kMaxBytes = 64;
  return !text.empty() && text.size() <= kMaxBytes &&
         text.find_first_not_of("0123456789abcdef-") == std::string_view::npos;
}

}  // namespace dslaunch
