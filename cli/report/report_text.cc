#include "cli/report/report_text.h"

#include <array>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <utility>

namespace dslaunch {
namespace {

template <class... Values>
std::string Print(const char* format, Values... values) {
  char text[512];
  std::snprintf(text, sizeof text, format, values...);  // NOLINT: the formats are below
  return text;
}

std::string Trimmed(std::string number) {
  if (number.find('.') == std::string::npos || number.find('e') != std::string::npos) return number;
  number.erase(number.find_last_not_of('0') + 1);
  if (number.back() == '.') number.pop_back();
  return number;
}

}  // namespace

std::string ShortNumber(double value) {
  if (!std::isfinite(value)) return "?";
  const double size = std::abs(value);
  static constexpr std::array<std::pair<double, const char*>, 4> kUnits = {
      {{1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e4, "k"}}};
  if (size < 1e15) {
    for (const auto& [unit, name] : kUnits) {
      if (size >= unit * 0.99999) return Print("%.4g", value / (unit == 1e4 ? 1e3 : unit)) + name;
    }
  }
  return Print("%.4g", value);
}

std::string ShortBytes(double bytes) {
  if (!std::isfinite(bytes)) return "?";
  if (bytes < 0) return "−" + ShortBytes(-bytes);
  static constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  size_t unit = 0;
  while (bytes >= 1000 && unit + 1 < std::size(kUnits)) {
    bytes /= 1024;
    ++unit;
  }
  return (bytes < 100 && unit > 0 ? Trimmed(Print("%.1f", bytes))
                                  : Print("%.4g", std::round(bytes))) +
         " " + kUnits[unit];
}

std::string ShortSeconds(double seconds) {
  if (!std::isfinite(seconds)) return "?";
  if (seconds == 0) return "0 s";
  if (seconds < 1e-3) return Print("%.3g µs", seconds * 1e6);
  if (seconds < 1) return Print("%.3g ms", seconds * 1e3);
  if (seconds < 100) return Print("%.3g s", seconds);
  const double minutes = std::floor(std::round(seconds) / 60);
  const double hours = std::floor(minutes / 60);
  const auto two = [](double large, const char* unit, double small, const char* small_unit) {
    const std::string text = Print("%.0f ", large) + unit;
    return small == 0 ? text : text + Print(" %.0f ", small) + small_unit;
  };
  return hours < 1 ? two(minutes, "min", std::round(seconds) - minutes * 60, "s")
                   : two(hours, "h", minutes - hours * 60, "min");
}

std::string Percent(double part) {
  if (!std::isfinite(part)) return "?";
  const double percent = part * 100;
  if (percent != 0 && std::abs(percent) < 0.05) return "<0.1%";
  return Print(percent != 0 && std::abs(percent) < 10 ? "%.1f%%" : "%.0f%%", percent);
}

std::string AccuracyText(double part) { return Print("%.2f%%", part * 100); }

std::string SignedPercent(double part) {
  return (part == 0 ? "±" : part < 0 ? "−" : "+") + Percent(std::abs(part));
}

std::string TimeText(int64_t unix_ms) {
  if (unix_ms == 0) return "?";
  const std::time_t seconds = unix_ms / 1000;
  std::tm local{};
  char text[64];
  if (localtime_r(&seconds, &local) == nullptr ||
      std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S %Z", &local) == 0)
    return "?";
  return text;
}

}  // namespace dslaunch
