// Text for people: formatted, with units.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>

namespace dslaunch {

// printf into a string of at most 1023 bytes.
std::string Format(const char* format, ...) __attribute__((format(printf, 1, 2)));

// printf writes a nan whose sign bit is set, as most are, as "-nan".
inline double WithoutSignOfNan(double number) {
  return std::isnan(number) ? std::fabs(number) : number;
}

// "1.2 KiB", "474.7 MiB"
std::string BytesText(int64_t bytes);

}  // namespace dslaunch
