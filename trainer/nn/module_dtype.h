// Determines and changes the dtypes of a module's tensors.
#pragma once

#include <c10/core/ScalarType.h>
#include <torch/nn/module.h>

#include <unordered_map>

#include "trainer/base/dtype.h"

namespace dslaunch {

at::ScalarType ToScalarType(Dtype dtype);

bool IsBatchNorm(const torch::nn::Module& module);

// Maps tensors to dtypes. The keys are TensorImpls, which copies of a tensor share.
using TensorDtypes = std::unordered_map<const at::TensorImpl*, at::ScalarType>;

// Returns the new dtypes of the parameters and buffers of `module` that must change. Only
// floating-point tensors change, whereas Module::to would also convert counters to fp16. With
// `batch_norm_float32`, tensors of batch norms become fp32. Returns an empty map if `dtype` is
// fp32, so a model in fp64 is not changed.
TensorDtypes ModuleDtypes(torch::nn::Module& module, Dtype dtype, bool batch_norm_float32);

// Converts the tensors in place according to ModuleDtypes.
void CastModule(torch::nn::Module& module, Dtype dtype, bool batch_norm_float32);

}  // namespace dslaunch
