#include "trainer/nn/module_dtype.h"

#include <torch/nn/modules/batchnorm.h>

#include <cstdlib>

namespace dslaunch {
bool IsBatchNorm(const torch::nn::Module& module) {
  return dynamic_cast<const torch::nn::BatchNorm1dImpl*>(&module) != nullptr ||
         dynamic_cast<const torch::nn::BatchNorm2dImpl*>(&module) != nullptr ||
         dynamic_cast<const torch::nn::BatchNorm3dImpl*>(&module) != nullptr;
}

at::ScalarType ToScalarType(Dtype dtype) {
  switch (dtype) {
    case Dtype::kFloat32:
      return at::kFloat;
    case Dtype::kFloat16:
      return at::kHalf;
    case Dtype::kBFloat16:
      return at::kBFloat16;
  }
  std::abort();
}

TensorDtypes ModuleDtypes(torch::nn::Module& module, Dtype dtype, bool batch_norm_float32) {
  TensorDtypes dtypes;
  if (dtype == Dtype::kFloat32) return dtypes;
  module.apply([&](torch::nn::Module& part) {
    const at::ScalarType type =
        batch_norm_float32 && IsBatchNorm(part) ? at::kFloat : ToScalarType(dtype);
    const auto add = [&](const at::Tensor& tensor) {
      if (!tensor.defined() || !tensor.is_floating_point()) return;
      if (tensor.scalar_type() != type) dtypes.emplace(tensor.unsafeGetTensorImpl(), type);
    };
    for (const auto& parameter : part.named_parameters(/*recurse=*/false)) add(parameter.value());
    for (const auto& buffer : part.named_buffers(/*recurse=*/false)) add(buffer.value());
  });
  return dtypes;
}

void CastModule(torch::nn::Module& module, Dtype dtype, bool batch_norm_float32) {
  const auto dtypes = ModuleDtypes(module, dtype, batch_norm_float32);
  const auto cast = [&](at::Tensor& tensor) {
    const auto wanted = dtypes.find(tensor.unsafeGetTensorImpl());
    if (wanted != dtypes.end()) tensor.set_data(tensor.to(wanted->second));
  };
  for (at::Tensor& parameter : module.parameters()) cast(parameter);
  for (at::Tensor& buffer : module.buffers()) cast(buffer);
}

}  // namespace dslaunch
