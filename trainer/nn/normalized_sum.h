// Defines the results of a residual connection and of the normalization that follows it.
#pragma once

#include <ATen/core/Tensor.h>

namespace dslaunch {

struct NormalizedSum {
  at::Tensor sum, normalized;
};

}  // namespace dslaunch
