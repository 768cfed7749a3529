// Stands in for libcuda.so.1. Reports FAKE_CUDA_DEVICES devices (2 by default), or fewer if
// CUDA_VISIBLE_DEVICES hides some. If FAKE_CUDA_ERROR is set, initialization fails with that error.
#include <algorithm>
#include <cstdlib>
#include <string>

namespace {

int Number(const char* name, int otherwise) {
  const char* const value = std::getenv(name);
  return value == nullptr ? otherwise : std::atoi(value);
}

int Visible(int devices) {
  const char* const text = std::getenv("CUDA_VISIBLE_DEVICES");
  if (text == nullptr) return devices;
  const std::string list(text);
  if (list.empty() || list == "-1") return 0;
  return std::min(devices, 1 + static_cast<int>(std::ranges::count(list, ',')));
}

}  // namespace

extern "C" {

int cuInit(unsigned) { return Number("FAKE_CUDA_ERROR", 0); }

int cuDeviceGetCount(int* count) {
  *count = Visible(Number("FAKE_CUDA_DEVICES", 2));
  return 0;
}

int cuGetErrorString(int error, const char** text) {
  static std::string words;
  words = "the fake driver's words for " + std::to_string(error);
  *text = words.c_str();
  return 0;
}

}  // extern "C"
