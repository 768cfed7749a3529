#include "agent/accelerators/node_accelerators.h"

#include <optional>
#include <utility>

#include "agent/accelerators/system_files.h"
#include "agent/accelerators/visible_devices.h"
#include "base/os/folder_names.h"

namespace dslaunch {
namespace {

Result<NodeAccelerators> Read(const AcceleratorRow& row, const LookUpVariable& getenv,
                              bool each_alone, const std::string& root) {
  NodeAccelerators found;
  found.row = &row;
  found.installed = row.read(root, getenv);
  DSL_TRY_ASSIGN(found.numbered, NumberedDevices(row, found.installed, getenv));
  DSL_TRY_ASSIGN(found.visible, VisibleTo(row, found.installed, getenv, each_alone));
  return found;
}

}  // namespace

Result<NodeAccelerators> FindAccelerators(pb::Device wanted, bool only_cuda,
                                          const LookUpVariable& getenv, bool each_alone,
                                          const std::string& root) {
  const bool is_any = wanted == pb::DEVICE_AUTO || wanted == pb::DEVICE_CPU;
  if (!is_any || only_cuda) return Read(RowOf(wanted), getenv, each_alone, root);
  std::optional<NodeAccelerators> first;
  for (const AcceleratorRow& row : AcceleratorTable()) {
    DSL_TRY_ASSIGN(NodeAccelerators found, Read(row, getenv, each_alone, root));
    if (!found.visible.empty()) return found;
    if (!found.installed.empty() && !first) first = std::move(found);
  }
  if (first) return *std::move(first);
  NodeAccelerators none;
  none.row = &RowOf(pb::DEVICE_CUDA);
  return none;
}

std::string FindUnusableFile(const std::string& root) {
  for (const char* const folder : {"/dev/", "/dev/dri/", "/dev/accel/"}) {
    for (const std::string& name : NamesIn(root + folder)) {
      const std::string path = folder + name;
      if (IsAcceleratorFile(path) && !IsUsableFile(root + path)) return path;
    }
  }
  return "";
}

}  // namespace dslaunch
