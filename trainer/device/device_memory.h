// Measures the memory of tensors on a device.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>

namespace dslaunch {

// Returns the peak memory of tensors on `device`, a GPU, in bytes, since the process began or since
// the last RestartDevicePeak.
int64_t DevicePeakBytes(c10::Device device);
// Sets the peak of DevicePeakBytes to the memory that is in use now.
void RestartDevicePeak(c10::Device device);

}  // namespace dslaunch
