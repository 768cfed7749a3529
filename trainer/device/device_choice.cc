#include "trainer/device/device_choice.h"

namespace dslaunch {
namespace {

constexpr char kNoPlugin[] =
    "this dslaunch-train was built without CUDA (libdslaunch_cuda.so is not beside it)";

Error Unavailable(const std::string& problem) { return {ExitCode::kUnavailable, problem}; }

}  // namespace

Result<ChosenDevice> ChooseDevice(DeviceKind asked, int local_rank, const CudaFacts& facts) {
  if (asked == DeviceKind::kCpu) return ChosenDevice{};
  const bool must = asked == DeviceKind::kCuda;
  if (facts.plugin.empty()) {
    if (must) {
      return Unavailable(
          std::string("--device cuda: ") + kNoPlugin +
          "; build it against a LibTorch with CUDA (dslaunch help training), or take "
          "--device cpu");
    }
    if (facts.devices == 0) return ChosenDevice{};
    return ChosenDevice{.notice = std::string(kNoPlugin) + ", so the CPU computes and not the GPU"};
  }
  if (facts.devices == 0) {
    if (!must) return ChosenDevice{};
    return Unavailable("--device cuda: " + facts.none_reason + "; take --device cpu");
  }
  if (local_rank >= facts.devices) {
    return Unavailable("local rank " + std::to_string(local_rank) +
                       " has no GPU: the process sees " + std::to_string(facts.devices) +
                       "; start fewer ranks (--num_gpus), or take --device cpu");
  }
  return ChosenDevice{.cuda = true, .index = local_rank};
}

}  // namespace dslaunch
