// Converts bytes to lower-case hexadecimal text, and checks such text.
#pragma once

#include <string>
#include <string_view>

namespace dslaunch {

inline constexpr std::string_view kHexDigits = "0123456789abcdef";

inline std::string ToHex(std::string_view bytes) {
  std::string hex;
  for (const unsigned char byte : bytes) hex += {kHexDigits[byte >> 4], kHexDigits[byte & 15]};
  return hex;
}

inline bool IsHex(std::string_view text) {
  return !text.empty() && text.find_first_not_of(kHexDigits) == std::string_view::npos;
}

}  // namespace dslaunch
