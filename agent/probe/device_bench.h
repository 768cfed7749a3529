// Measures the speed of the GPUs by running dslaunch-train, because the static agent cannot load
// CUDA.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/deadline.h"
#include "base/error.h"
#include "proto/measure.pb.h"

namespace dslaunch {

// Runs `trainer`, the absolute path of dslaunch-train, for all devices that it sees. Returns an
// empty list if it sees none. Errors are written for users. Blocks for at most `patience`.
Result<std::vector<pb::DeviceSpeed>> MeasureDevices(const std::string& trainer,
                                                    milliseconds patience);

// Parses the output of `dslaunch-train bench devices`: lines of "device", the number, and four
// rates per second (operations of a product of matrices, bytes to the device, from it, and within
// its memory). Skips other lines, because the trainer is not trusted. Pure.
std::vector<pb::DeviceSpeed> ParseDeviceSpeeds(std::string_view output);

}  // namespace dslaunch
