// Stands in for libcuda.so.1: tells FAKE_CUDA_DEVICES devices, or starts with the error
// FAKE_CUDA_ERROR.
#include <cstdlib>
#include <string>

extern "C" {

int cuInit(unsigned) { return std::atoi(std::getenv("FAKE_CUDA_ERROR")); }

int cuDeviceGetCount(int* count) {
  *count = std::atoi(std::getenv("FAKE_CUDA_DEVICES"));
  return 0;
}

int cuGetErrorString(int error, const char** text) {
  static std::string words;
  words = "the fake driver's words for " + std::to_string(error);
  *text = words.c_str();
  return 0;
}

}  // extern "C"
