// Takes the place of NVIDIA's libnvidia-ml.so.1. What it answers is in the environment:
//   FAKE_NVML_GPUS=2 FAKE_NVML_DRIVER=580.82.07
//   FAKE_NVML_ERROR=18   what its start returns; FAKE_NVML_HANGS=1   it never returns
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

const char* Variable(const char* name, const char* otherwise) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : otherwise;
}

int Copy(const char* text, char* to, unsigned size) {
  std::snprintf(to, size, "%s", text);
  return 0;
}

}  // namespace

extern "C" {

struct Memory {
  unsigned long long total, free, used;
};

int nvmlInit_v2() {
  if (std::getenv("FAKE_NVML_HANGS") != nullptr) {
    while (true) pause();
  }
  return std::atoi(Variable("FAKE_NVML_ERROR", "0"));
}
int nvmlShutdown() { return 0; }
const char* nvmlErrorString(int error) {
  return error == 18 ? "Driver/library version mismatch" : "Unknown Error";
}
int nvmlSystemGetDriverVersion(char* text, unsigned size) {
  return Copy(Variable("FAKE_NVML_DRIVER", "580.82.07"), text, size);
}
int nvmlSystemGetCudaDriverVersion_v2(int* version) {
  *version = 13010;
  return 0;
}
int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = static_cast<unsigned>(std::atoi(Variable("FAKE_NVML_GPUS", "1")));
  return 0;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) {
  *device = reinterpret_cast<void*>(static_cast<unsigned long>(index) + 1);
  return 0;
}
int nvmlDeviceGetName(void*, char* text, unsigned size) { return Copy("NVIDIA Fake", text, size); }
int nvmlDeviceGetUUID(void* device, char* text, unsigned size) {
  return std::snprintf(text, size, "GPU-%lu", reinterpret_cast<unsigned long>(device)) < 0;
}
int nvmlDeviceGetMemoryInfo(void*, Memory* memory) {
  *memory = {80ull << 30, 79ull << 30, 1ull << 20};
  return 0;
}

}  // extern "C"
