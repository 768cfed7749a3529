#include "agent/probe/node_faults.h"

#include <utility>

#include "agent/probe/gpu_health.h"
#include "base/count.h"
#include "base/text/sanitize.h"
#include "base/text/size_text.h"

namespace dslaunch {
namespace {

class Faults {
 public:
  void CheckHealth(const pb::NodeMeasurement& measured) {
    if (!measured.has_health() || measured.health().passed()) return;
    Add("health command", measured.health().failure(),
        "repair the node, or leave it out (--exclude)");
  }

  void CheckFolders(const pb::NodeMeasurement& measured) {
    for (const pb::FolderSpeed& folder : measured.folders()) {
      if (folder.trouble().empty()) continue;
      Add(folder.use() == pb::MeasuredFolder::LOGS ? "log folder" : "checkpoint folder",
          "nothing could be stored in " + folder.path() + ": " + folder.trouble(),
          "make it writable and make room there, or give another folder");
    }
  }

  void CheckGpus(const pb::NodeMeasurement& measured, uint32_t gpus) {
    if (!measured.gpu_trouble().empty())
      Add("gpus", measured.gpu_trouble(), "compare with nvidia-smi there");
    if (!measured.device_trouble().empty())
      Add("gpus", measured.device_trouble(), "run that command there");
    for (const pb::GpuHealth& gpu : measured.gpus()) {
      if (gpu.index() < gpus) CheckGpu(gpu);
    }
  }

  std::vector<NodeFault> Take() { return std::move(faults_); }

 private:
  void CheckGpu(const pb::GpuHealth& gpu) {
    const std::string name = "GPU " + std::to_string(gpu.index());
    if (gpu.memory_used_bytes() >= kFreeGpuUsesBytes) {
      Add("gpu memory",
          name + " has " + SizeText(gpu.memory_used_bytes()) + " of " +
              SizeText(gpu.memory_bytes()) + " in use" +
              (gpu.holder().empty() ? "" : ", by " + gpu.holder()),
          "end that program, or wait longer (--gpu_free_timeout)");
    }
    if (gpu.uncorrected_errors() > 0) {
      Add("gpu errors",
          name + " has had " + Count(gpu.uncorrected_errors(), "uncorrected memory error") +
              " since its driver was loaded",
          "reset the GPU or restart the node; replace the GPU if they return");
    }
    if (gpu.pages_pending()) {
      Add("gpu errors", name + " has memory pages that wait to be retired",
          "reset the GPU or restart the node");
    }
    if (!gpu.slowdown().empty()) {
      Add("gpu clock", name + " is slowed down by its hardware (" + gpu.slowdown() + ")",
          "look at its cooling and power (nvidia-smi -q -d PERFORMANCE)");
    }
  }

  void Add(std::string check, const std::string& seen, std::string hint) {
    faults_.push_back({std::move(check), SanitizeForTerminal(seen), std::move(hint)});
  }

  std::vector<NodeFault> faults_;
};

}  // namespace

std::vector<NodeFault> FaultsOf(const pb::NodeMeasurement& measured, uint32_t gpus) {
  Faults faults;
  faults.CheckHealth(measured);
  faults.CheckFolders(measured);
  faults.CheckGpus(measured, gpus);
  return faults.Take();
}

}  // namespace dslaunch
