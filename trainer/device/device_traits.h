// What a rank's hardware has and can do.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "trainer/config/precision_config.h"

namespace dslaunch {

struct RankDevice;

struct DeviceTraits {
  int64_t memory_bytes = 0;  // of a GPU; 0: not known
  // Whether it computes with these itself; otherwise they are converted around each operation.
  bool float16 = true;
  bool bfloat16 = true;
};

// Of the device, or of this machine's CPU.
DeviceTraits TraitsOf(const RankDevice& device);

// Of a CPU whose /proc/cpuinfo is `text`. Pure. Where nothing is known of its kind, both are true.
DeviceTraits TraitsOfCpu(std::string_view text);

// One line for the user where the precision is one that the hardware has to emulate: it then saves
// memory, not time. Else empty. Pure.
std::string PrecisionRemark(const PrecisionConfig& precision, const DeviceTraits& traits);

}  // namespace dslaunch
