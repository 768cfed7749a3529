// From the text of an option's value to the value. Pure. What cannot be understood is thrown as
// CLI::ValidationError that names the option, as CLI11 expects of a reader.
#pragma once

#include <CLI/CLI.hpp>
#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/options.h"

namespace dslaunch {

std::string Quoted(std::string_view text);

template <class T>
T ReadWhole(const std::string& option, const std::string& text, T min, T max) {
  T value = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (status != std::errc() || end != text.data() + text.size() || value < min || value > max) {
    throw CLI::ValidationError(option + " must be a whole number from " + std::to_string(min) +
                               " to " + std::to_string(max) + ", not " + Quoted(text));
  }
  return value;
}

template <class T>
T ReadChoice(const std::string& option, const std::string& text,
             const std::vector<std::pair<std::string, T>>& choices) {
  std::string names;
  for (const auto& [name, value] : choices) {
    if (CLI::detail::to_lower(text) == name) return value;
    names += (names.empty() ? "" : ", ") + name;
  }
  throw CLI::ValidationError(option + " must be one of " + names + ", not " + Quoted(text));
}

double ReadNumber(const std::string& option, const std::string& text, double min, double max);

// Seconds with fractions, `min_s` to `max_s`.
int64_t ReadSecondsAsMs(const std::string& option, const std::string& text, double min_s,
                        double max_s);

Tee ReadTee(const std::string& text);

// N or MIN:MAX, as torchrun's --nnodes.
struct NodeRange {
  int min = 0;
  std::optional<int> max;  // nullopt: just N
};
NodeRange ReadNodes(const std::string& text);

inline constexpr int kMaxNodes = 1'000'000;

}  // namespace dslaunch
