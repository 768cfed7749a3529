// Formats text for people, with units.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>

namespace dslaunch {

// Formats like printf; the result is cut to 1023 bytes.
std::string Format(const char* format, ...) __attribute__((format(printf, 1, 2)));

// Returns NaN without its sign bit, because printf prints the usual NaN as "-nan".
inline double WithoutSignOfNan(double number) {
  return std::isnan(number) ? std::fabs(number) : number;
}

// Returns "1.2 KiB", "474.7 MiB".
std::string BytesText(int64_t bytes);

}  // namespace dslaunch
