#include "trainer/device/device_memory.h"

#include <ATen/DeviceAccelerator.h>

namespace dslaunch {

int64_t DevicePeakBytes(c10::Device device) {
  constexpr auto kAll = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
  return at::accelerator::getDeviceStats(device.index()).allocated_bytes[kAll].peak;
}

void RestartDevicePeak(c10::Device device) { at::accelerator::resetPeakStats(device.index()); }

}  // namespace dslaunch
