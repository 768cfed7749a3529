// Finds the trainer's CUDA library. It is a separate shared library, so that the same
// dslaunch-train runs on machines with and without GPUs.
#pragma once

#include <filesystem>
#include <string>

namespace dslaunch {

inline constexpr char kCudaPluginFile[] = "libdslaunch_cuda.so";

// Returns the path of the trainer's CUDA library, or an empty string if this dslaunch was built
// without CUDA. `bin` is the folder of dslaunch and dslaunch-train in a build tree or an installed
// tree.
inline std::string FindCudaPlugin(const std::filesystem::path& bin) {
  std::error_code ignored;
  const std::filesystem::path path = (bin / "../lib/dslaunch" / kCudaPluginFile).lexically_normal();
  return std::filesystem::exists(path, ignored) ? path.string() : "";
}

}  // namespace dslaunch
