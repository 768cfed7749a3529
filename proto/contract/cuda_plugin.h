// Where the part of the trainer that needs CUDA is: a shared library of its own, so that one
// dslaunch-train runs on machines with and without GPUs.
#pragma once

#include <filesystem>
#include <string>

namespace dslaunch {

inline constexpr char kCudaPluginFile[] = "libdslaunch_cuda.so";

// `bin` is the folder of dslaunch and dslaunch-train: of a build tree, where it lies beside them,
// or of an installation. Empty: it is in neither place, so this dslaunch was built without CUDA.
inline std::string FindCudaPlugin(const std::filesystem::path& bin) {
  for (const std::filesystem::path& folder : {bin, bin / "../lib/dslaunch"}) {
    std::error_code ignored;
    const std::filesystem::path path = (folder / kCudaPluginFile).lexically_normal();
    if (std::filesystem::exists(path, ignored)) return path.string();
  }
  return "";
}

}  // namespace dslaunch
