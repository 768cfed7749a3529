#include "trainer/precision/module_dtype.h"

#include <torch/nn/modules/batchnorm.h>

#include <cstdlib>

namespace dslaunch {
namespace {

bool IsBatchNorm(const torch::nn::Module& module) {
  return dynamic_cast<const torch::nn::BatchNorm1dImpl*>(&module) != nullptr ||
         dynamic_cast<const torch::nn::BatchNorm2dImpl*>(&module) != nullptr ||
         dynamic_cast<const torch::nn::BatchNorm3dImpl*>(&module) != nullptr;
}

}  // namespace

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

void CastModule(torch::nn::Module& module, Dtype dtype, bool batch_norm_float32) {
  if (dtype == Dtype::kFloat32) return;
  const auto cast = [](at::Tensor& tensor, at::ScalarType type) {
    if (tensor.defined() && tensor.is_floating_point()) tensor.set_data(tensor.to(type));
  };
  module.apply([&](torch::nn::Module& part) {
    const at::ScalarType type =
        batch_norm_float32 && IsBatchNorm(part) ? at::kFloat : ToScalarType(dtype);
    for (auto& parameter : part.named_parameters(/*recurse=*/false)) cast(parameter.value(), type);
    for (auto& buffer : part.named_buffers(/*recurse=*/false)) cast(buffer.value(), type);
  });
}

}  // namespace dslaunch
