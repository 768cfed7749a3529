// Defines the dtypes of the configuration and their names, without LibTorch.
#pragma once

namespace dslaunch {

enum class Dtype { kFloat32, kFloat16, kBFloat16 };

constexpr const char* DtypeName(Dtype dtype) {
  switch (dtype) {
    case Dtype::kFloat32:
      return "fp32";
    case Dtype::kFloat16:
      return "fp16";
    case Dtype::kBFloat16:
      return "bf16";
  }
  return "";
}

}  // namespace dslaunch
