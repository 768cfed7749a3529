// A libFuzzer program for one of the readers: READER is its name.
#include <cstddef>
#include <cstdint>

#include "tests/fuzz/hostile_readers.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  dslaunch::READER(std::string(reinterpret_cast<const char*>(data), size));
  return 0;
}
