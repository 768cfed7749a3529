// Defines the format of job ids.
#pragma once

#include <string_view>

namespace dslaunch {

// Returns whether `text` is a valid job id: only digits, a to f and '-', as in the ids that
// dslaunch makes, and at most 64 bytes. Such a text is safe in paths and commands.
inline bool IsJobId(std::string_view text) {
  constexpr size_t kMaxBytes = 64;
  return !text.empty() && text.size() <= kMaxBytes &&
         text.find_first_not_of("0123456789abcdef-") == std::string_view::npos;
}

}  // namespace dslaunch
