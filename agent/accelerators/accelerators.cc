#include "agent/accelerators/accelerators.h"

#include <algorithm>

#include "agent/accelerators/readers.h"
#include "base/count.h"

namespace dslaunch {

const std::vector<AcceleratorRow>& AcceleratorTable() {
  static const std::vector<AcceleratorRow> table = {
      {.device = pb::DEVICE_CUDA,
       .option = "cuda",
       .name = "CUDA",
       .vendor = "NVIDIA",
       .noun = "GPU",
       .levels = {{"CUDA_VISIBLE_DEVICES"}},
       .hides_all = "",
       .takes_uuids = true,
       .files = "/dev/nvidia*",
       .open_files = {"/dev/nvidia*"},
       .tool = "nvidia-smi",
       .interface_variables = {"NCCL_SOCKET_IFNAME"},
       .read = ReadNvidia},
      // HIP prefers HIP_VISIBLE_DEVICES to CUDA_VISIBLE_DEVICES, so it comes first. RCCL reads the
      // variables of NCCL.
      {.device = pb::DEVICE_ROCM,
       .option = "rocm",
       .name = "ROCm",
       .vendor = "AMD",
       .noun = "GPU",
       .levels = {{"ROCR_VISIBLE_DEVICES"}, {"HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"}},
       .copies = {"GPU_DEVICE_ORDINAL"},
       .hides_all = "-1",
       .takes_uuids = true,
       .files = "/dev/kfd and /dev/dri/renderD*",
       .open_files = {"/dev/kfd"},
       .tool = "rocm-smi",
       .interface_variables = {"NCCL_SOCKET_IFNAME"},
       .read = ReadAmd},
      {.device = pb::DEVICE_XPU,
       .option = "xpu",
       .name = "XPU",
       .vendor = "Intel",
       .noun = "GPU",
       .levels = {{"ZE_AFFINITY_MASK"}},
       .empty_hides_all = false,
       .files = "/dev/dri/renderD*",
       .open_files = {"/dev/dri/renderD*"},
       .tool = "xpu-smi",
       .tool_arguments = {"discovery"},
       .interface_variables = {"CCL_KVS_IFACE"},
       .read = ReadIntel},
      {.device = pb::DEVICE_NPU,
       .option = "npu",
       .name = "NPU",
       .vendor = "Ascend",
       .noun = "NPU",
       .levels = {{"ASCEND_RT_VISIBLE_DEVICES"}},
       .is_given_by_file = true,
       .files = "/dev/davinci*",
       .open_files = {"/dev/davinci*"},
       .tool = "npu-smi",
       .tool_arguments = {"info"},
       .interface_variables = {"HCCL_SOCKET_IFNAME"},
       .read = ReadAscend},
      {.device = pb::DEVICE_HPU,
       .option = "hpu",
       .name = "HPU",
       .vendor = "Gaudi",
       .noun = "HPU",
       .levels = {{"HABANA_VISIBLE_MODULES"}},
       .is_given_by_file = true,
       .files = "/dev/accel/accel*",
       .open_files = {"/dev/accel/accel*", "/dev/hl*"},
       .tool = "hl-smi",
       .interface_variables = {"HCCL_SOCKET_IFNAME"},
       .read = ReadGaudi},
      {.device = pb::DEVICE_MLU,
       .option = "mlu",
       .name = "MLU",
       .vendor = "Cambricon",
       .noun = "MLU",
       .levels = {{"MLU_VISIBLE_DEVICES"}},
       .is_given_by_file = true,
       .files = "/dev/cambricon_dev*",
       .open_files = {"/dev/cambricon_dev*"},
       .tool = "cnmon",
       .interface_variables = {},
       .read = ReadCambricon},
  };
  return table;
}

const AcceleratorRow& RowOf(pb::Device device) {
  const auto& table = AcceleratorTable();
  const auto found = std::ranges::find(table, device, &AcceleratorRow::device);
  return found == table.end() ? table.front() : *found;
}

std::string_view DeviceOption(pb::Device device) {
  return device == pb::DEVICE_CPU    ? "cpu"
         : device == pb::DEVICE_AUTO ? "auto"
                                     : RowOf(device).option;
}

std::string CountText(const AcceleratorRow& row, int count) {
  return Count(static_cast<size_t>(count), std::string(row.noun));
}

bool IsDeviceVariable(std::string_view name) {
  return std::ranges::any_of(AcceleratorTable(), [&](const AcceleratorRow& row) {
    const auto has_name = [&](const std::vector<std::string_view>& names) {
      return std::ranges::find(names, name) != names.end();
    };
    return std::ranges::any_of(row.levels, has_name) || has_name(row.copies);
  });
}

bool IsAcceleratorFile(std::string_view path) {
  const auto matches = [&](std::string_view file) {
    if (!file.ends_with('*')) return path == file;
    file.remove_suffix(1);
    return path.starts_with(file) && path.size() > file.size() && path[file.size()] >= '0' &&
           path[file.size()] <= '9';
  };
  return path.starts_with("/dev/") &&
         std::ranges::any_of(AcceleratorTable(), [&](const AcceleratorRow& row) {
           return std::ranges::any_of(row.open_files, matches);
         });
}

}  // namespace dslaunch
