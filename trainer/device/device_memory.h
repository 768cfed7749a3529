// Memory of tensors on a device.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>

namespace dslaunch {

// Returns the maximum number of bytes that tensors on `device`, a GPU, had at one time since the
// process began or RestartDevicePeak was last called.
int64_t DevicePeakBytes(c10::Device device);
void RestartDevicePeak(c10::Device device);

}  // namespace dslaunch
