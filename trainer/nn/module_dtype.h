// The number formats of a module's tensors.
#pragma once

#include <c10/core/ScalarType.h>
#include <torch/nn/module.h>

#include <unordered_map>

#include "trainer/base/dtype.h"

namespace dslaunch {

at::ScalarType ToScalarType(Dtype dtype);

bool IsBatchNorm(const torch::nn::Module& module);

// What parameters and buffers of `module` are to become, those of them that are to change: only
// those of floating point, unlike Module::to, which would make fp16 numbers of counters.
// `batch_norm_float32`: those of batch norms become fp32. Nothing where `dtype` is fp32: a model in
// double stays one.
std::unordered_map<const at::TensorImpl*, at::ScalarType> ModuleDtypes(torch::nn::Module& module,
                                                                       Dtype dtype,
                                                                       bool batch_norm_float32);

// Makes them that, in place.
void CastModule(torch::nn::Module& module, Dtype dtype, bool batch_norm_float32);

}  // namespace dslaunch
