// Numbers of things, names and times, in words.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

namespace dslaunch {

// "1 node", "2 nodes".
inline std::string Count(size_t count, const std::string& what) {
  return std::to_string(count) + " " + what + (count == 1 ? "" : "s");
}

// The first few of `names`, and how many more there are.
inline std::string NameList(const std::vector<std::string>& names, const std::string& separator,
                            size_t max_shown = 8) {
  std::string list;
  for (size_t i = 0; i < names.size() && i < max_shown; ++i) {
    list += (i == 0 ? "" : separator) + names[i];
  }
  if (names.size() > max_shown) {
    list += separator + "and " + std::to_string(names.size() - max_shown) + " more";
  }
  return list;
}

// "1 s", "0.25 s"; as short as it can be said.
inline std::string Seconds(int64_t ms) {
  char text[32];
  std::snprintf(text, sizeof text, "%g s", static_cast<double>(ms) / 1000);
  return text;
}

// "6 s", for what was measured and is not worth a fraction.
inline std::string WholeSeconds(std::chrono::nanoseconds duration) {
  return std::to_string(std::chrono::duration_cast<std::chrono::seconds>(duration).count()) + " s";
}

}  // namespace dslaunch
