// Formats sizes and durations for users.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>

namespace dslaunch {

// Returns a size in powers of ten, such as "0 bytes", "1 byte" or "12.3 MB".
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

// Returns a duration such as "2 s" or "0.25 s". From one minute on, uses whole seconds, as in "3
// min", "5 min 02 s" or "2 h 05 min 10 s". From two days on, uses days and hours, as in "3 d 04 h".
// Omits trailing units of 0. Returns "0 s" for negative values.
inline std::string DurationText(int64_t ms) {
  char text[64];
  if (ms < 60'000) {
    std::snprintf(text, sizeof text, "%g s", static_cast<double>(std::max<int64_t>(ms, 0)) / 1000);
    return text;
  }
  const int64_t s = ms / 1000;
  const bool in_days = s >= 48 * 3600;
  const struct {
    int64_t count;
    const char* unit;
  } parts[] = {{in_days ? s / 86'400 : 0, "d"},
               {in_days ? s / 3600 % 24 : s / 3600, "h"},
               {in_days ? 0 : s / 60 % 60, "min"},
               {in_days ? 0 : s % 60, "s"}};
  std::string duration;
  std::string zeros;  // pending zero units, appended only if a nonzero unit follows
  for (const auto& part : parts) {
    std::snprintf(text, sizeof text, duration.empty() ? "%lld " : " %02lld ",
                  static_cast<long long>(part.count));
    if (part.count == 0) {
      if (!duration.empty()) zeros += std::string(text) + part.unit;
      continue;
    }
    duration += std::exchange(zeros, "") + text + part.unit;
  }
  return duration;
}

}  // namespace dslaunch
