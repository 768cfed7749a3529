// Sizes of files, for users.
#pragma once

#include <array>
#include <cstdint>
#include <cstdio>
#include <string>

namespace dslaunch {

// "0 bytes", "1 byte", "12.3 MB": powers of ten.
inline std::string SizeText(uint64_t bytes) {
  constexpr std::array kUnits = {"kB", "MB", "GB", "TB", "PB", "EB"};
  if (bytes < 1000) return std::to_string(bytes) + (bytes == 1 ? " byte" : " bytes");
  double size = static_cast<double>(bytes) / 1000;
  size_t unit = 0;
  while (size >= 999.95 && unit + 1 < kUnits.size()) {
    size /= 1000;
    ++unit;
  }
  char text[32];
  std::snprintf(text, sizeof text, "%.1f %s", size, kUnits[unit]);
  return text;
}

}  // namespace dslaunch
