// Chooses the kind and the index of the device on which a rank computes. Pure.
#pragma once

#include <string>

#include "base/error.h"
#include "trainer/config/device_kind.h"

namespace dslaunch {

// The devices that this rank's process can see.
struct CudaInfo {
  int devices = 0;          // number of devices under CUDA_VISIBLE_DEVICES
  std::string none_reason;  // why `devices` is 0: "there is no NVIDIA driver (...)"
  std::string plugin;       // path of libdslaunch_cuda.so; empty if built without CUDA
};

struct ChosenDevice {
  bool cuda = false;
  int index = 0;            // number of the device among the visible ones
  std::string notice = {};  // text for the user if the choice may be unexpected, else empty
};

// Gives each rank of a machine its own device, the one with its local rank as index. With kAuto,
// chooses the CPU if the process sees no device or the trainer was built without CUDA. Errors are
// kUnavailable and have a hint.
Result<ChosenDevice> ChooseDevice(DeviceKind asked, int local_rank, const CudaInfo& info);

}  // namespace dslaunch
