// Chooses the kind and index of the device on which a rank computes. Pure function.
#pragma once

#include <string>

#include "base/error.h"
#include "trainer/config/device_kind.h"

namespace dslaunch {

// The CUDA devices that this rank's process can use.
struct CudaInfo {
  int devices = 0;          // number of devices that are visible under CUDA_VISIBLE_DEVICES
  std::string none_reason;  // reason why `devices` is 0; otherwise empty
  std::string plugin;  // path of libdslaunch_cuda.so; empty if the trainer was built without CUDA
};

struct ChosenDevice {
  bool cuda = false;
  int index = 0;            // index of the device among the visible devices
  std::string notice = {};  // message if the choice may be unexpected; otherwise empty
};

// Gives each rank of a machine its own device, whose index is the local rank. With kAuto, chooses
// the CPU if no device is visible to the process or the trainer was built without CUDA. Errors are
// kUnavailable and contain a hint.
Result<ChosenDevice> ChooseDevice(DeviceKind asked, int local_rank, const CudaInfo& info);

}  // namespace dslaunch
