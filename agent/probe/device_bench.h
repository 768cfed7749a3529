// The speed of the GPUs, measured by dslaunch-train, because the static agent cannot load CUDA.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/deadline.h"
#include "base/error.h"
#include "proto/measure.pb.h"

namespace dslaunch {

// Runs `trainer`, the absolute path of dslaunch-train, for all devices that it sees. Returns an
// empty list if it sees none. Errors are for users. Blocks for `patience` at most.
Result<std::vector<pb::DeviceSpeed>> MeasureDevices(const std::string& trainer,
                                                    milliseconds patience);

// Parses what `dslaunch-train bench devices` prints: lines of "device", the number, and four
// numbers per second (operations of a product of matrices, bytes to the device, from it, and within
// its memory). Other lines are skipped; the trainer is not trusted. Pure.
std::vector<pb::DeviceSpeed> ParseDeviceSpeeds(std::string_view output);

}  // namespace dslaunch
