#include "trainer/device/cuda_plugin.h"

#include <ATen/Context.h>
#include <dlfcn.h>

#include <cstddef>
#include <cstring>
#include <filesystem>
#include <vector>

#include "base/text/sanitize.h"
#include "dslaunch/plugin.h"
#include "proto/contract/cuda_plugin.h"
#include "trainer/base/log.h"
#include "trainer/base/train_error.h"
#include "trainer/device/cuda_driver.h"

namespace dslaunch {
namespace {

// Maximum printed length of a stamp, which may be any text in another version.
constexpr size_t kMaxStamp = 200;

[[noreturn]] void Refuse(const std::string& problem) {
  throw TrainError(ExitCode::kUnavailable, problem + ", or use device cpu (--device cpu)");
}

std::filesystem::path OwnFolder() {
  std::error_code ignored;
  return std::filesystem::read_symlink("/proc/self/exe", ignored).parent_path();
}

// Returns the path of the library in the program's run path; empty if it is not there. Programs
// that were built with the SDK have the folder of an installed dslaunch in their run path.
std::string PluginInRunPath() {
  Dl_serinfo size = {};
  void* const program = dlopen(nullptr, RTLD_LAZY);
  if (program == nullptr || dlinfo(program, RTLD_DI_SERINFOSIZE, &size) != 0) return "";
  std::vector<std::byte> memory(size.dls_size);
  auto* const paths = reinterpret_cast<Dl_serinfo*>(memory.data());
  if (dlinfo(program, RTLD_DI_SERINFOSIZE, paths) != 0) return "";
  if (dlinfo(program, RTLD_DI_SERINFO, paths) != 0) return "";
  for (unsigned i = 0; i < paths->dls_cnt; ++i) {
    const std::filesystem::path folder = paths->dls_serpath[i].dls_name;
    std::error_code ignored;
    if (folder.is_absolute() && std::filesystem::exists(folder / kCudaPluginFile, ignored))
      return (folder / kCudaPluginFile).string();
  }
  return "";
}

// Throws if the program used LibTorch earlier. LibTorch checks only once whether it has CUDA.
void CheckLoadedInTime() {
  if (at::globalContext().hasCUDA()) return;
  Refuse(
      "CUDA cannot be used: this process had used LibTorch before CUDA's libraries were loaded; "
      "call dslaunch::InitProcessGroup before anything else of LibTorch (torch::manual_seed, for "
      "example)");
}

}  // namespace

Accelerator& LoadCudaPlugin(const std::string& path) {
  // In another version of LibTorch, symbols may be missing. RTLD_LAZY allows the stamp to be read
  // even then.
  void* const library = dlopen(path.c_str(), RTLD_LAZY | RTLD_LOCAL);
  if (library == nullptr) {
    Refuse("CUDA cannot be used: " + SanitizeForTerminal(dlerror()) +
           "; dslaunch must be built with a LibTorch whose CUDA libraries are on this machine "
           "(dslaunch help training)");
  }
  const auto* symbol = static_cast<const AcceleratorSymbol*>(dlsym(library, "dslaunch_cuda"));
  if (symbol == nullptr) Refuse(path + " is not a plugin of dslaunch; build dslaunch again");
  if (std::strcmp(symbol->stamp, DSLAUNCH_PLUGIN_STAMP) != 0) {
    Refuse(path + " was built for " +
           SanitizeForTerminal({symbol->stamp, strnlen(symbol->stamp, kMaxStamp)}) +
           "; this trainer is " DSLAUNCH_PLUGIN_STAMP ": install both from one build");
  }
  return *symbol->make();
}

RankDevice SelectDevice(DeviceKind asked, const WorkerEnv& env) {
  if (asked == DeviceKind::kCpu) return {};
  const CudaDevices devices = CountCudaDevices();
  std::string plugin = FindCudaPlugin(OwnFolder());
  if (plugin.empty() && devices.count > 0) plugin = PluginInRunPath();
  const Result<ChosenDevice> chosen =
      ChooseDevice(asked, env.local_rank, {devices.count, devices.none_reason, plugin});
  if (!chosen) throw TrainError(chosen.error().code, chosen.error().message);
  if (!chosen->notice.empty() && env.rank == 0) PrintLine(chosen->notice);
  if (!chosen->cuda) return {};
  Accelerator& accelerator = LoadCudaPlugin(plugin);
  CheckLoadedInTime();
  accelerator.Use(chosen->index);
  const c10::Device device(accelerator.type(), static_cast<c10::DeviceIndex>(chosen->index));
  StartFusedKernels(device, /*reports_error=*/env.rank == 0, [&accelerator, index = chosen->index] {
    return accelerator.MakeFusedKernels(index);
  });
  return {device, &accelerator};
}

}  // namespace dslaunch
