#include "cli/plan/device_decision.h"

#include "agent/accelerators/accelerators.h"
#include "base/count.h"
#include "base/text/sanitize.h"

namespace dslaunch {
namespace {

Error Usage(std::string message) { return Error{ExitCode::kUsage, std::move(message)}; }

// Returns the device's name with an article, such as "a GPU" or "an NPU".
std::string OneDevice(const AcceleratorRow& row) {
  return (row.noun == "GPU" ? "a " : "an ") + std::string(row.noun);
}

// Returns the kind of the job's devices; DEVICE_CPU if no device is requested and no node has any.
Result<pb::Device> KindOf(pb::Device requested, const std::vector<NodeGpus>& nodes) {
  if (requested != pb::DEVICE_AUTO) return requested;
  const NodeGpus* first = nullptr;
  for (const NodeGpus& node : nodes) {
    if (node.gpus == 0) continue;
    if (first == nullptr) first = &node;
    if (node.device == first->device) continue;
    const auto kind = [](const NodeGpus& one) {
      const AcceleratorRow& row = RowOf(one.device);
      return one.name + " has " + std::string(row.vendor) + " " + std::string(row.noun) + "s";
    };
    return Usage("--device auto: " + kind(*first) + ", " + kind(node) +
                 "; choose nodes of one kind with --include, or add --device cpu");
  }
  return first == nullptr ? pb::DEVICE_CPU : first->device;
}

}  // namespace

Result<DeviceDecision> DecideDevice(pb::Device requested, const std::vector<NodeGpus>& nodes,
                                    bool one_machine, bool only_cuda) {
  if (requested == pb::DEVICE_CPU)
    return DeviceDecision{pb::DEVICE_CPU, "CPU, set by --device cpu"};
  DSL_TRY_ASSIGN(const pb::Device device, KindOf(requested, nodes));
  if (device == pb::DEVICE_CPU) {
    return DeviceDecision{device, std::string("CPU, as no node has an ") +
                                      (only_cuda ? "NVIDIA GPU" : "accelerator")};
  }
  const AcceleratorRow& row = RowOf(device);
  int all_slots = 0;
  for (const NodeGpus& node : nodes) all_slots += node.slots;
  std::vector<std::string> lacking;
  for (const NodeGpus& node : nodes) {
    const int needed = one_machine ? all_slots : node.slots;
    const bool is_chosen = node.last_device >= 0;
    if (node.gpus >= (is_chosen ? node.last_device + 1 : needed)) continue;
    lacking.push_back(
        node.name + " has " + CountText(row, node.gpus) +
        (is_chosen ? ", so no " + std::string(row.noun) + " " + std::to_string(node.last_device)
                   : " for " + Count(static_cast<size_t>(needed), "slot")));
    if (one_machine) break;  // all nodes share the devices of this machine
  }
  const std::string option = "--device " + std::string(DeviceOption(requested));
  if (lacking.empty()) {
    return DeviceDecision{device,
                          std::string(row.name) + (requested == pb::DEVICE_AUTO
                                                       ? ", as every slot has " + OneDevice(row)
                                                       : ", set by " + option)};
  }
  if (one_machine) lacking.front().replace(0, nodes.front().name.size(), "this machine");
  return Usage(option + ": not every slot has " + OneDevice(row) + ": " + NameList(lacking, ", ") +
               "; ask for fewer slots (--num_gpus), or add --device cpu");
}

}  // namespace dslaunch
