#include "trainer/device/cuda_driver.h"

#include <dlfcn.h>

#include <cstdlib>

#include "base/text/sanitize.h"

namespace dslaunch {
namespace {

// Types of the driver's functions that are used. These functions have not changed since the first
// version of the driver's interface, and return 0 on success.
using InitFunction = int (*)(unsigned flags);
using CountFunction = int (*)(int* count);
using ErrorFunction = int (*)(int error, const char** text);

constexpr int kNoDevice = 100;  // value of CUDA_ERROR_NO_DEVICE in cuda.h

std::string ErrorText(void* driver, int error) {
  const char* text = nullptr;
  const auto describe = reinterpret_cast<ErrorFunction>(dlsym(driver, "cuGetErrorString"));
  if (describe == nullptr || describe(error, &text) != 0 || text == nullptr) {
    return "error " + std::to_string(error);
  }
  return SanitizeForTerminal(text);
}

CudaDevices NoneVisible() {
  const char* const visible = std::getenv("CUDA_VISIBLE_DEVICES");
  if (visible == nullptr) return {0, "this machine has no CUDA device"};
  return {0, "no CUDA device is visible: CUDA_VISIBLE_DEVICES is \"" +
                 SanitizeForTerminal(visible) + "\""};
}

}  // namespace

CudaDevices CountCudaDevices(const char* driver_path) {
  void* const driver = dlopen(driver_path, RTLD_NOW | RTLD_LOCAL);
  if (driver == nullptr)
    return {0, std::string("this machine has no NVIDIA driver (") + driver_path + ")"};
  const auto init = reinterpret_cast<InitFunction>(dlsym(driver, "cuInit"));
  const auto count_devices = reinterpret_cast<CountFunction>(dlsym(driver, "cuDeviceGetCount"));
  if (init == nullptr || count_devices == nullptr) {
    return {0, std::string(driver_path) + " is not an NVIDIA driver"};
  }
  int count = 0;
  int error = init(0);
  if (error == 0) error = count_devices(&count);
  if (error == kNoDevice || (error == 0 && count == 0)) return NoneVisible();
  if (error != 0) return {0, "the NVIDIA driver does not start: " + ErrorText(driver, error)};
  return {count, ""};
}

}  // namespace dslaunch
