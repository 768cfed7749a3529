#include "trainer/profile/peak_flops.h"

#include <filesystem>
#include <fstream>

namespace dslaunch {
namespace {

struct Device {
  const char* part;  // substring of the device's name; the first row that matches is used
  double fp16_tera;
  double bf16_tera;  // 0 if the device does not support bf16
  double fp32_tera;
};

constexpr Device kDevices[] = {
    {"GB200", 2500, 2500, 80},        {"B200", 2250, 2250, 80},
    {"H200", 989.4, 989.4, 66.9},     {"GH200", 989.4, 989.4, 66.9},
    {"H100 PCIe", 756, 756, 51.2},    {"H100 NVL", 835, 835, 60},
    {"H100", 989.4, 989.4, 66.9},     {"H800", 989.4, 989.4, 66.9},
    {"A100", 312, 312, 19.5},         {"A800", 312, 312, 19.5},
    {"L40S", 362, 362, 91.6},         {"L40", 181, 181, 90.5},
    {"L4", 121, 121, 30.3},           {"A40", 149.7, 149.7, 37.4},
    {"A30", 165, 165, 10.3},          {"A10", 125, 125, 31.2},
    {"RTX 4090", 165.2, 165.2, 82.6}, {"RTX 3090", 71, 71, 35.6},
    {"V100", 125, 0, 15.7},           {"T4", 65, 0, 8.1},
};

}  // namespace

std::optional<double> PeakFlops(const std::string& name, Dtype dtype) {
  for (const Device& device : kDevices) {
    if (name.find(device.part) == std::string::npos) continue;
    const double tera = dtype == Dtype::kFloat32    ? device.fp32_tera
                        : dtype == Dtype::kBFloat16 ? device.bf16_tera
                                                    : device.fp16_tera;
    if (tera == 0) return std::nullopt;
    return tera * 1e12;
  }
  return std::nullopt;
}

std::string GpuName() {
  std::error_code error;
  for (const auto& gpu : std::filesystem::directory_iterator("/proc/driver/nvidia/gpus", error)) {
    std::ifstream information(gpu.path() / "information");
    for (std::string line; std::getline(information, line);) {
      if (!line.starts_with("Model:")) continue;
      const size_t begin = line.find_first_not_of(" \t", 6);
      if (begin != std::string::npos) return line.substr(begin);
    }
  }
  return "";
}

}  // namespace dslaunch
