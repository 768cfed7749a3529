// What a job id looks like.
#pragma once

#include <string_view>

namespace dslaunch {

// Only of digits, a to f and '-', as dslaunch makes them: safe in a path and in a command.
inline bool IsJobId(std::string_view text) {
  constexpr size_t kMaxBytes = 64;
  return !text.empty() && text.size() <= kMaxBytes &&
         text.find_first_not_of("0123456789abcdef-") == std::string_view::npos;
}

}  // namespace dslaunch
