// Formats counts, lists of names and durations for messages.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

namespace dslaunch {

// Returns a count with its noun, such as "1 node" or "2 nodes". `what` is the singular of a noun
// whose plural ends in "s".
inline std::string Count(size_t count, const std::string& what) {
  return std::to_string(count) + " " + what + (count == 1 ? "" : "s");
}

// Returns the first `max_shown` names, joined by `separator`, and the number of the other names, as
// in "a, b, and 3 more".
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

// Returns a duration in seconds with no more decimals than needed, such as "1 s" or "0.25 s".
inline std::string Seconds(int64_t ms) {
  std::string text = std::to_string(ms / 1000);
  if (ms % 1000 != 0) {
    char rest[16];
    std::snprintf(rest, sizeof rest, ".%03d", static_cast<int>(ms % 1000));
    text += rest;
    text.erase(text.find_last_not_of('0') + 1);
  }
  return text + " s";
}

// Returns a duration rounded down to whole seconds, such as "6 s".
inline std::string WholeSeconds(std::chrono::nanoseconds duration) {
  return std::to_string(std::chrono::duration_cast<std::chrono::seconds>(duration).count()) + " s";
}

}  // namespace dslaunch
