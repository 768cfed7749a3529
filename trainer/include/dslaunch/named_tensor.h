#pragma once

#include <ATen/core/Tensor.h>

#include <string>

namespace dslaunch {

struct NamedTensor {
  std::string name;  // module path, such as "fc1.weight"
  at::Tensor tensor;
};

}  // namespace dslaunch
