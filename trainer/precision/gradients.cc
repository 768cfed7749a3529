#include "trainer/precision/gradients.h"

#include <ATen/ATen.h>

#include <cmath>

namespace dslaunch {
namespace {

double Norm(const std::vector<at::Tensor>& gradients, std::optional<at::ScalarType> dtype) {
  const std::vector<at::Tensor> norms = at::_foreach_norm(gradients, 2, dtype);
  return at::linalg_vector_norm(at::stack(norms), 2, {}, false, at::kDouble).item<double>();
}

}  // namespace

double GradientNorm(const std::vector<at::Tensor>& gradients) {
  const at::NoGradGuard no_grad;
  const at::ScalarType type = gradients.at(0).scalar_type();
  const double norm = Norm(gradients, at::promote_types(type, at::kFloat));
  // Squares of finite numbers may leave fp32's range, but not double's.
  return std::isfinite(norm) ? norm : Norm(gradients, at::kDouble);
}

std::optional<size_t> FirstNotFinite(const std::vector<at::Tensor>& gradients) {
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < gradients.size(); ++i) {
    if (!at::isfinite(gradients[i]).all().item<bool>()) return i;
  }
  return std::nullopt;
}

}  // namespace dslaunch
