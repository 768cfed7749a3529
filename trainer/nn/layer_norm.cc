#include "trainer/nn/layer_norm.h"

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <optional>
#include <tuple>

#include "trainer/device/fused_kernels.h"
#include "trainer/nn/named_operator.h"

namespace dslaunch {
namespace {

namespace autograd = torch::autograd;

at::Tensor AsRows(const at::Tensor& x) { return x.view({-1, x.size(-1)}); }

std::optional<at::Tensor> ContiguousRows(const std::optional<at::Tensor>& x) {
  return x ? std::optional(AsRows(x->contiguous())) : std::nullopt;
}

using Tensors3 = std::tuple<at::Tensor, at::Tensor, at::Tensor>;
using Tensors4 = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor>;

// ZeRO gathers a parameter when an operator uses it (trainer/parallel/zero/parameter_gatherer.h),
// so RunForward and RunBackward are registered as LibTorch operators. All tensors are [rows,
// columns].

// Returns {sums, normalized, means, inverse deviations}; sums is empty without a branch.
Tensors4 RunForward(const at::Tensor& x, const std::optional<at::Tensor>& branch,
                    const at::Tensor& weight, const at::Tensor& bias, double epsilon) {
  const FusedKernels::Normalized found =
      FusedKernelsFor(x)->LayerNorm(x, branch.value_or(at::Tensor()), weight, bias, epsilon);
  return {branch ? found.sums : at::empty({0}, x.options()), found.normalized, found.means,
          found.inverse_deviations};
}

// Returns the gradients with respect to {x, weight, bias}.
Tensors3 RunBackward(const at::Tensor& gradient, const std::optional<at::Tensor>& sum_gradient,
                     const at::Tensor& sums, const at::Tensor& means,
                     const at::Tensor& inverse_deviations, const at::Tensor& weight) {
  const FusedKernels::LayerNormGradients found = FusedKernelsFor(sums)->GradientsOfLayerNorm(
      gradient, sum_gradient.value_or(at::Tensor()), {sums, {}, means, inverse_deviations}, weight);
  return {found.x, found.weight, found.bias};
}

TORCH_LIBRARY(dslaunch, library) {
  library.def(
      "layer_norm(Tensor x, Tensor? branch, Tensor weight, Tensor bias, float epsilon) -> "
      "(Tensor, Tensor, Tensor, Tensor)");
  library.def(
      "layer_norm_gradients(Tensor gradient, Tensor? sum_gradient, Tensor sums, Tensor means, "
      "Tensor inverse_deviations, Tensor weight) -> (Tensor, Tensor, Tensor)");
}
TORCH_LIBRARY_IMPL(dslaunch, CompositeExplicitAutograd, library) {
  library.impl("layer_norm", &RunForward);
  library.impl("layer_norm_gradients", &RunBackward);
}

// Autograd function that returns {sum, normalized}. Without a branch the sum is x.
struct Normalization : autograd::Function<Normalization> {
  static autograd::variable_list forward(autograd::AutogradContext* context, const at::Tensor& x,
                                         const std::optional<at::Tensor>& branch,
                                         const at::Tensor& weight, const at::Tensor& bias,
                                         double epsilon) {
    static const auto run = NamedOperator<decltype(RunForward)>("dslaunch::layer_norm");
    const auto [sums, normalized, means, inverse_deviations] =
        run.call(AsRows(x), ContiguousRows(branch), weight, bias, epsilon);
    const at::Tensor sum = branch ? sums.view_as(x) : x;
    context->saved_data["has_branch"] = branch.has_value();
    context->save_for_backward({sum, weight, means, inverse_deviations});
    context->set_materialize_grads(false);
    return {sum, normalized.view_as(x)};
  }

  static autograd::variable_list backward(autograd::AutogradContext* context,
                                          const autograd::variable_list& gradients) {
    const at::Tensor &of_sum = gradients[0], &of_normalized = gradients[1];
    const bool has_branch = context->saved_data["has_branch"].toBool();
    const auto results = [&](const at::Tensor& x, const at::Tensor& weight,
                             const at::Tensor& bias) {
      return autograd::variable_list{x, has_branch ? x : at::Tensor(), weight, bias, {}};
    };
    if (!of_normalized.defined()) return results(of_sum, {}, {});
    const autograd::variable_list saved = context->get_saved_variables();
    const at::Tensor& sum = saved[0];
    static const auto run = NamedOperator<decltype(RunBackward)>("dslaunch::layer_norm_gradients");
    const auto [by_x, by_weight, by_bias] = run.call(
        *ContiguousRows(of_normalized), of_sum.defined() ? ContiguousRows(of_sum) : std::nullopt,
        AsRows(sum), saved[2], saved[3], saved[1]);
    return results(by_x.view_as(sum), by_weight, by_bias);
  }
};

bool HasKernel(const LayerNormWeights& layer, const at::Tensor& x, const at::Tensor& branch) {
  const auto alike = [&](const at::Tensor& tensor) {
    return tensor.scalar_type() == x.scalar_type();
  };
  if (at::autocast::is_autocast_enabled(x.device().type())) return false;
  if (!alike(layer.weight) || !alike(layer.bias)) return false;
  if (branch.defined() && (!alike(branch) || !branch.sizes().equals(x.sizes()))) return false;
  const FusedKernels* const kernels = FusedKernelsFor(x);
  return kernels != nullptr && kernels->HasLayerNorm(AsRows(x));
}

}  // namespace

at::Tensor ApplyLayerNorm(const LayerNormWeights& layer, const at::Tensor& x) {
  return AddAndNormalize(layer, x).normalized;
}

NormalizedSum AddAndNormalize(const LayerNormWeights& layer, const at::Tensor& x,
                              const at::Tensor& branch) {
  const at::Tensor &weight = layer.weight, &bias = layer.bias;
  if (HasKernel(layer, x, branch)) {
    const autograd::variable_list found = Normalization::apply(
        x, branch.defined() ? std::optional(branch) : std::nullopt, weight, bias, layer.epsilon);
    return {found[0], found[1]};
  }
  const at::Tensor sum = branch.defined() ? x + branch : x;
  return {sum, at::layer_norm(sum, weight.sizes(), weight, bias, layer.epsilon)};
}

}  // namespace dslaunch
