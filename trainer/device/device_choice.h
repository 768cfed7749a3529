// On which kind of device a rank computes, and on which of its machine's. Pure.
#pragma once

#include <string>

#include "base/error.h"
#include "trainer/config/device_kind.h"

namespace dslaunch {

// What this rank's process can see.
struct CudaInfo {
  int devices = 0;          // CUDA_VISIBLE_DEVICES counts
  std::string none_reason;  // why `devices` is 0: "there is no NVIDIA driver (...)"
  std::string plugin;       // path of libdslaunch_cuda.so; empty: built without CUDA
};

struct ChosenDevice {
  bool cuda = false;
  int index = 0;            // among the visible ones
  std::string notice = {};  // for people, of what they may not expect; empty: nothing
};

// Each rank of a machine has a device of its own: the one with its local rank's number. With kAuto
// a rank computes on the CPU where its process sees no device, or where this trainer was built
// without CUDA. Errors are kUnavailable and have a hint.
Result<ChosenDevice> ChooseDevice(DeviceKind asked, int local_rank, const CudaInfo& info);

}  // namespace dslaunch
