#include "trainer/base/format.h"

#include <cstdarg>
#include <cstdio>
#include <iterator>

namespace dslaunch {

std::string Format(const char* format, ...) {
  char text[1024];
  va_list args;
  va_start(args, format);
  std::vsnprintf(text, sizeof text, format, args);
  va_end(args);
  return text;
}

std::string BytesText(int64_t bytes) {
  constexpr const char* kUnits[] = {"KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes) / 1024;
  size_t unit = 0;
  for (; value >= 1024 && unit + 1 < std::size(kUnits); ++unit) value /= 1024;
  return Format("%.1f %s", value, kUnits[unit]);
}

}  // namespace dslaunch
