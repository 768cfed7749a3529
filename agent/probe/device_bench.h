// Measures the speed of the GPUs. The static agent cannot load CUDA, so dslaunch-train makes the
// measurement.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/deadline.h"
#include "base/error.h"
#include "proto/measure.pb.h"

namespace dslaunch {

// Runs `trainer`, the absolute path of dslaunch-train, and returns the speed of all devices that
// the program sees; empty if it sees none. Error messages are for users. Blocks for at most
// `patience`.
Result<std::vector<pb::DeviceSpeed>> MeasureDevices(const std::string& trainer,
                                                    milliseconds patience);

// Returns the speeds in the output of `dslaunch-train bench devices`. A line has "device", the
// number, and four rates per second: operations of a matrix product, bytes to the device, bytes
// from it, and bytes within its memory. The trainer is not trusted, so other lines are skipped.
// Pure.
std::vector<pb::DeviceSpeed> ParseDeviceSpeeds(std::string_view output);

}  // namespace dslaunch
