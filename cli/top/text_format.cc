#include "cli/top/text_format.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

namespace dslaunch {
namespace {

std::string Format(const char* format, double value) {
  char text[32];
  std::snprintf(text, sizeof text, format, value);
  return text;
}

}  // namespace

std::string BriefBytes(double bytes) {
  constexpr std::array kUnits = {"", "K", "M", "G", "T", "P", "E"};
  size_t unit = 0;
  while (bytes >= 999.5 && unit + 1 < kUnits.size()) {
    bytes /= 1024;
    ++unit;
  }
  const bool is_small = unit > 0 && bytes < 9.95;
  return Format(is_small ? "%.1f" : "%.0f", bytes) + kUnits[unit];
}

std::string BriefNumber(double number) {
  if (!std::isfinite(number)) return "?";
  const double size = std::abs(number);
  if (size >= 1e12) return Format("%.1e", number);
  if (size >= 1e7) return Format("%.0fM", number / 1e6);
  if (size >= 1e4) return Format("%.0fk", number / 1e3);
  return Format(size >= 99.95 ? "%.0f" : "%.3g", number);
}

std::string RankRangesText(const std::vector<uint32_t>& ranks, size_t max_bytes) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < ranks.size();) {
    size_t last = i;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    std::string range = (i == 0 ? "" : ", ") + std::to_string(ranks[i]);
    if (last > i) range += "-" + std::to_string(ranks[last]);
    if (i > 0 && text.size() + range.size() > max_bytes) return text + " ...";
    text += range;
    i = last + 1;
  }
  return text;
}

std::optional<double> MedianValue(std::vector<double> values) {
  if (values.empty()) return std::nullopt;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace dslaunch
