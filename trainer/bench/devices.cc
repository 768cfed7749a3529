#include "trainer/bench/devices.h"

#include <ATen/Functions.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>

#include "proto/contract/worker_env.h"
#include "trainer/base/log.h"
#include "trainer/base/train_error.h"
#include "trainer/device/cuda_driver.h"
#include "trainer/device/cuda_plugin.h"
#include "trainer/device/streams.h"

namespace dslaunch {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kTries = 5;
// Minimum duration of measured work; in a shorter time, starting the work would dominate.
constexpr double kLongEnoughS = 0.005;
constexpr int64_t kLargestSide = 8192;
constexpr int64_t kCopyBytes = 64 << 20;

// Returns the shortest duration of several runs of `work`, in seconds.
double BestSeconds(c10::Device device, const std::function<void()>& work) {
  double best = 1e9;
  work();  // warms up the device before the measurement
  AwaitStream(device);
  for (int i = 0; i < kTries; ++i) {
    const Clock::time_point begin = Clock::now();
    work();
    AwaitStream(device);
    best = std::min(best, std::chrono::duration<double>(Clock::now() - begin).count());
  }
  return std::max(best, 1e-9);
}

// Returns the floating-point operations per second of a matrix product. Enlarges the matrices until
// a product takes long enough to be measured.
double GemmFlops(c10::Device device) {
  const auto options = at::TensorOptions().device(device).dtype(at::kBFloat16);
  for (int64_t side = 256;; side *= 2) {
    const at::Tensor a = at::ones({side, side}, options), b = at::ones({side, side}, options);
    at::Tensor c = at::empty({side, side}, options);
    const double seconds = BestSeconds(device, [&] { at::mm_out(c, a, b); });
    if (seconds < kLongEnoughS && side < kLargestSide) continue;
    const auto n = static_cast<double>(side);
    return 2 * n * n * n / seconds;
  }
}

void BenchDevice(c10::Device device) {
  const auto bytes = at::TensorOptions().dtype(at::kByte);
  const at::Tensor on_host = at::ones({kCopyBytes}, bytes).pin_memory();
  const at::Tensor here = at::zeros({kCopyBytes}, bytes.device(device));
  const at::Tensor there = at::zeros({kCopyBytes}, bytes.device(device));
  const double gemm = GemmFlops(device);
  const double to = kCopyBytes / BestSeconds(device, [&] { here.copy_(on_host, true); });
  const double from = kCopyBytes / BestSeconds(device, [&] { on_host.copy_(here, true); });
  const double within = kCopyBytes / BestSeconds(device, [&] { there.copy_(here, true); });
  std::string line = "device " + std::to_string(device.index());
  for (const double number : {gemm, to, from, within})
    line += " " + std::to_string(static_cast<uint64_t>(number));
  PrintLine(line);
}

}  // namespace

int RunBenchDevices(const std::vector<std::string>& words) {
  if (!words.empty()) throw TrainError(ExitCode::kUsage, "bench devices takes no arguments");
  const int count = CountCudaDevices().count;
  for (int i = 0; i < count; ++i) {
    WorkerEnv place;
    place.local_rank = i;
    const RankDevice device = SelectDevice(DeviceKind::kCuda, place);
    BenchDevice(device.device);
  }
  return ToInt(ExitCode::kOk);
}

}  // namespace dslaunch
