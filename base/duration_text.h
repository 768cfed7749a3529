// The one form in which users read a duration.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>

namespace dslaunch {

// "2 s", "0.25 s"; from a minute on in whole seconds: "3 min", "5 min 02 s", "2 h 05 min 10 s";
// from two days on "3 d 04 h". Units of 0 at the end are left out. Negative: "0 s".
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
  std::string zeros;  // that are said only if something follows them
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
