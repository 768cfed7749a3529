#include "trainer/device/device_choice.h"

namespace dslaunch {
namespace {

constexpr char kNoPlugin[] =
    "this dslaunch was built without CUDA (there is no libdslaunch_cuda.so)";

Error Unavailable(const std::string& problem) { return {ExitCode::kUnavailable, problem}; }

}  // namespace

Result<ChosenDevice> ChooseDevice(DeviceKind asked, int local_rank, const CudaInfo& info) {
  if (asked == DeviceKind::kCpu) return ChosenDevice{};
  const bool must = asked == DeviceKind::kCuda;
  if (info.plugin.empty()) {
    if (must) {
      return Unavailable(std::string("device cuda: ") + kNoPlugin +
                         "; build it against a LibTorch with CUDA (dslaunch help training), or use "
                         "device cpu (--device cpu)");
    }
    if (info.devices == 0) return ChosenDevice{};
    return ChosenDevice{.notice = std::string(kNoPlugin) + "; training runs on the CPU"};
  }
  if (info.devices == 0) {
    if (!must) return ChosenDevice{};
    return Unavailable("device cuda: " + info.none_reason + "; use device cpu (--device cpu)");
  }
  if (local_rank >= info.devices) {
    return Unavailable("local rank " + std::to_string(local_rank) +
                       " has no GPU: the process sees " + std::to_string(info.devices) +
                       "; start fewer ranks (--num_gpus), or use --device cpu");
  }
  return ChosenDevice{.cuda = true, .index = local_rank};
}

}  // namespace dslaunch
