// What the kernel says of this process's memory.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <fstream>
#include <string>

namespace dslaunch {

// A field of /proc/self/status, in KiB: "VmRSS", "VmPeak". Fails the test where there is none.
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
