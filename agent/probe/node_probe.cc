#include "agent/probe/node_probe.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <utility>

#include "agent/host/nvidia_smi.h"
#include "agent/probe/device_bench.h"
#include "agent/probe/folder_speed.h"
#include "agent/probe/gpu_health.h"
#include "agent/probe/health_command.h"
#include "agent/probe/processor_speed.h"
#include "base/deadline.h"
#include "base/os/usable_cores.h"
#include "proto/contract/job_paths.h"

namespace dslaunch {
namespace {

constexpr milliseconds kMostTime(2'000);  // limit of the time for each of processor and memory
constexpr milliseconds kFolderTime(200);
constexpr milliseconds kFolderTestTime(1);
constexpr milliseconds kFolderPatience(5'000);
constexpr milliseconds kDevicePatience(30'000);
constexpr milliseconds kMostGpuWait(3'600'000);
constexpr int kMostFolders = 4;

void MeasureFolders(const pb::MeasureRequest& request, pb::NodeMeasurement& measured) {
  for (int i = 0; i < std::min(request.folders_size(), kMostFolders); ++i) {
    pb::MeasuredFolder folder = request.folders(i);
    if (folder.path().empty()) {
      folder.set_path(JobsFolder(std::getenv("XDG_STATE_HOME"), std::getenv("HOME"), ::geteuid()));
    }
    const milliseconds time = request.for_ms() > 0 ? kFolderTime : kFolderTestTime;
    *measured.add_folders() = MeasureFolder(folder, time, kFolderPatience);
  }
}

void MeasureCores(const pb::MeasureRequest& request, pb::NodeMeasurement& measured) {
  const milliseconds time = std::min(milliseconds(request.for_ms()), kMostTime);
  if (time.count() == 0) return;
  const int threads = std::clamp(static_cast<int>(std::min(request.threads(), 4096u)), 1,
                                 std::max(UsableCores(), 1));
  const ProcessorSpeed processor = MeasureProcessor(threads, time);
  measured.set_core_flops(processor.core_flops);
  measured.set_cpu_share_permille(processor.cpu_share_permille);
  const MemorySpeed memory = MeasureMemory(time);
  measured.set_memory_bytes_per_s(memory.bytes_per_s);
  measured.set_memory_starved_permille(memory.starved_permille);
}

void MeasureGpus(const pb::MeasureRequest& request, pb::NodeMeasurement& measured) {
  if (request.gpus() == 0) return;
  const milliseconds wait = std::min(milliseconds(request.gpu_wait_ms()), kMostGpuWait);
  GpuHealthReport report = ExamineGpus(FindNvidiaSmi(), request.gpus(), wait);
  measured.set_gpu_trouble(report.trouble);
  for (pb::GpuHealth& gpu : report.gpus) *measured.add_gpus() = std::move(gpu);
  // A GPU that another program uses would be slow, and the measurement would slow that program
  // down, so such a GPU is not measured.
  const std::vector<pb::GpuHealth> gpus(measured.gpus().begin(), measured.gpus().end());
  if (request.trainer().empty() || gpus.empty() || !AreFree(gpus, request.gpus())) return;
  Result<std::vector<pb::DeviceSpeed>> speeds = MeasureDevices(request.trainer(), kDevicePatience);
  if (!speeds.ok()) return measured.set_device_trouble(speeds.error().message);
  for (pb::DeviceSpeed& speed : *speeds) *measured.add_devices() = std::move(speed);
}

}  // namespace

pb::NodeMeasurement MeasureNode(const pb::MeasureRequest& request) {
  pb::NodeMeasurement measured;
  MeasureFolders(request, measured);
  if (request.has_health()) *measured.mutable_health() = RunHealthCommand(request.health());
  MeasureCores(request, measured);
  MeasureGpus(request, measured);
  return measured;
}

}  // namespace dslaunch
