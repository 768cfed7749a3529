// The results of a normalization and the residual connection before it.
#pragma once

#include <ATen/core/Tensor.h>

namespace dslaunch {

struct NormalizedSum {
  at::Tensor sum, normalized;
};

}  // namespace dslaunch
