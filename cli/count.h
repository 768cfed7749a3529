// Numbers of things and times, in words.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>

namespace dslaunch {

// "1 node", "2 nodes".
inline std::string Count(size_t count, const std::string& what) {
  return std::to_string(count) + " " + what + (count == 1 ? "" : "s");
}

// "1 s", "0.25 s"; as short as it can be said.
inline std::string Seconds(int64_t ms) {
  char text[32];
  std::snprintf(text, sizeof text, "%g s", static_cast<double>(ms) / 1000);
  return text;
}

}  // namespace dslaunch
