// Determines properties of a rank's hardware.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "trainer/config/precision_config.h"

namespace dslaunch {

struct RankDevice;

struct DeviceTraits {
  int64_t memory_bytes = 0;  // memory of a GPU in bytes; 0 for a CPU or if unknown
  // True if the hardware computes in the format. Otherwise, values are converted before and after
  // each operation.
  bool float16 = true;
  bool bfloat16 = true;
};

// Returns the traits of the device, or of this machine's CPU if the device is the CPU.
DeviceTraits TraitsOf(const RankDevice& device);

// Returns the traits of a CPU whose /proc/cpuinfo is `text`. For an unknown kind of CPU, assumes
// that both formats are supported. Pure function.
DeviceTraits TraitsOfCpu(std::string_view text);

// Returns a notice if the hardware must emulate the chosen precision, which then saves memory but
// no time; otherwise empty. Pure function.
std::string PrecisionRemark(const PrecisionConfig& precision, const DeviceTraits& traits);

}  // namespace dslaunch
