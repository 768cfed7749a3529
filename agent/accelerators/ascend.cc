#include "agent/accelerators/readers.h"
#include "agent/accelerators/system_files.h"

namespace dslaunch {

std::vector<Accelerator> ReadAscend(const std::string& root, const LookUpVariable&) {
  constexpr uint64_t kHuawei = 0x19e5;
  constexpr uint64_t kProcessingAccelerator = 0x1200;  // PCI class of accelerators
  std::vector<Accelerator> npus;
  for (const int file : NumbersIn(root + "/dev", "davinci")) {
    if (!IsUsableFile(root + "/dev/davinci" + std::to_string(file))) continue;
    Accelerator& npu = npus.emplace_back();
    npu.name = "Ascend NPU";
    npu.file = file;
    // Device files and PCI addresses may have different orders, so the PCI address of a single
    // device is unknown. Only a NUMA node that all devices share is reliable.
    npu.numa_node = CommonNumaNode(root, kHuawei, {kProcessingAccelerator});
  }
  return npus;
}

}  // namespace dslaunch
