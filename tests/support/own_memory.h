// Reads this process's memory use from the kernel.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <fstream>
#include <string>

namespace dslaunch {

// Returns a field of /proc/self/status, such as "VmRSS" or "VmPeak", in KiB. Fails the test and
// returns 0 if the field is missing.
inline int64_t OwnMemoryKib(const std::string& field) {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    int64_t kib = 0;
    if (word == field + ":" && status >> kib) return kib;
  }
  ADD_FAILURE() << "/proc/self/status has no " << field;
  return 0;
}

}  // namespace dslaunch
