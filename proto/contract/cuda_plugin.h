// Where the part of the trainer that needs CUDA is: a shared library of its own, so that one
// dslaunch-train runs on machines with and without GPUs.
#pragma once

#include <filesystem>
#include <string>

namespace dslaunch {

inline constexpr char kCudaPluginFile[] = "libdslaunch_cuda.so";

// `bin` is the folder of dslaunch and dslaunch-train, in a build tree or an installed one. Empty:
// there is no such library, so this dslaunch was built without CUDA.
inline std::string FindCudaPlugin(const std::filesystem::path& bin) {
  std::error_code ignored;
  const std::filesystem::path path = (bin / "../lib/dslaunch" / kCudaPluginFile).lexically_normal();
  return std::filesystem::exists(path, ignored) ? path.string() : "";
}

}  // namespace dslaunch
