// Formats text, and numbers with their units.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>

namespace dslaunch {

// Formats like printf. The result is cut off after 1023 bytes.
std::string Format(const char* format, ...) __attribute__((format(printf, 1, 2)));

// Returns `number`, but NaN without its sign bit. printf prints the usual NaN as "-nan".
inline double WithoutSignOfNan(double number) {
  return std::isnan(number) ? std::fabs(number) : number;
}

// Returns text such as "1.2 KiB" or "474.7 MiB".
std::string BytesText(int64_t bytes);

}  // namespace dslaunch
