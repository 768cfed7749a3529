// A libFuzzer program for the functions that DSLAUNCH_EDGES_DEF lists. DSLAUNCH_FUZZ_FUNCTION names
// the function to run. One program contains all functions, because a program for each would be as
// large.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include DSLAUNCH_EDGES_H

namespace {

bool (*reads)(const std::string& bytes) = nullptr;

}  // namespace

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  const char* const wanted = std::getenv("DSLAUNCH_FUZZ_FUNCTION");
#define EDGE(function, changes) \
  if (wanted != nullptr && std::strcmp(wanted, #function) == 0) reads = dslaunch::function;
#include DSLAUNCH_EDGES_DEF
#undef EDGE
  if (reads != nullptr) return 0;
  std::fprintf(stderr,
               "DSLAUNCH_FUZZ_FUNCTION names none of the functions of " DSLAUNCH_EDGES_DEF "\n");
  std::exit(64);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  reads(std::string(reinterpret_cast<const char*>(data), size));
  return 0;
}
