#include "trainer/precision/gradients.h"

#include <ATen/ATen.h>

#include <cmath>
#include <map>

namespace dslaunch {
namespace {

at::Tensor Norm(const std::vector<at::Tensor>& gradients, at::ScalarType dtype) {
  const std::vector<at::Tensor> norms = at::_foreach_norm(gradients, 2, dtype);
  return at::linalg_vector_norm(at::stack(norms), 2, {}, false, at::kDouble);
}

at::Tensor FastNorm(const std::vector<at::Tensor>& gradients) {
  return Norm(gradients, at::promote_types(gradients.at(0).scalar_type(), at::kFloat));
}

}  // namespace

double GradientNorm(const std::vector<at::Tensor>& gradients) {
  const at::NoGradGuard no_grad;
  const auto norm = FastNorm(gradients).item<double>();
  // Squares of finite numbers may exceed fp32's range, but not fp64's, so the norm is computed
  // again in fp64.
  return std::isfinite(norm) ? norm : Norm(gradients, at::kDouble).item<double>();
}

at::Tensor GradientNormOnDevice(const std::vector<at::Tensor>& gradients) {
  const at::NoGradGuard no_grad;
  return FastNorm(gradients);
}

void ClipOnDevice(const std::vector<at::Tensor>& gradients, const at::Tensor& norm, double limit) {
  const at::NoGradGuard no_grad;
  const at::Tensor factor = (limit / (norm + 1e-6)).clamp_max(1);
  std::map<at::ScalarType, std::vector<at::Tensor>> by_dtype;
  for (const at::Tensor& gradient : gradients) by_dtype[gradient.scalar_type()].push_back(gradient);
  for (const auto& [dtype, tensors] : by_dtype) at::_foreach_mul_(tensors, factor.to(dtype));
}

std::optional<size_t> FirstNonFinite(const std::vector<at::Tensor>& gradients) {
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < gradients.size(); ++i) {
    if (!at::isfinite(gradients[i]).all().item<bool>()) return i;
  }
  return std::nullopt;
}

}  // namespace dslaunch
