#include "trainer/nn/rms_norm.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <optional>
#include <tuple>

#include "trainer/device/fused_kernels.h"
#include "trainer/nn/named_operator.h"

namespace dslaunch {
namespace {

namespace autograd = torch::autograd;

using Tensors2 = std::tuple<at::Tensor, at::Tensor>;
using Tensors3 = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

at::Tensor AsRows(const at::Tensor& x) { return x.view({-1, x.size(-1)}); }

// Returns the device's kernels if they support `x` and `weight`, else null.
FusedKernels* KernelsFor(const at::Tensor& x, const at::Tensor& weight) {
  FusedKernels* const kernels = FusedKernelsFor(x);
  const bool fits = kernels != nullptr && x.scalar_type() == weight.scalar_type() &&
                    kernels->HasRmsNorm(AsRows(x));
  return fits ? kernels : nullptr;
}

// ZeRO gathers a parameter when an operator uses it (trainer/parallel/zero/parameter_gatherer.h),
// so RunForward and RunBackward are registered as LibTorch operators.

// Returns {sum, normalized, inverses}: x + branch, or an empty tensor without a branch; the sum
// divided by its root mean square, times weight; and 1 / root mean square, [..., 1] in fp32.
Tensors3 RunForward(const at::Tensor& x, const std::optional<at::Tensor>& branch,
                    const at::Tensor& weight, double epsilon) {
  std::vector<int64_t> of_rows = x.sizes().vec();
  of_rows.back() = 1;
  if (FusedKernels* const kernels = KernelsFor(x, weight)) {
    const FusedKernels::RmsNormalized found = kernels->RmsNorm(
        AsRows(x), branch ? AsRows(branch->contiguous()) : at::Tensor(), weight, epsilon);
    return {branch ? found.sums.view(x.sizes()) : at::empty({0}, x.options()),
            found.normalized.view(x.sizes()), found.inverses.view(of_rows)};
  }
  const at::Tensor sum = branch ? x + *branch : x;
  const at::Tensor wide = sum.to(at::kFloat);
  const at::Tensor inverses = wide.square().mean(-1, /*keepdim=*/true).add_(epsilon).rsqrt_();
  return {branch ? sum : at::empty({0}, x.options()),
          weight * (wide * inverses).to(x.scalar_type()), inverses};
}

// Returns the gradients with respect to {sum, weight}.
Tensors2 RunBackward(const at::Tensor& gradient, const std::optional<at::Tensor>& sum_gradient,
                     const at::Tensor& sum, const at::Tensor& inverses, const at::Tensor& weight) {
  if (FusedKernels* const kernels = KernelsFor(sum, weight)) {
    const FusedKernels::RmsNormGradients found = kernels->GradientsOfRmsNorm(
        AsRows(gradient.contiguous()),
        sum_gradient ? AsRows(sum_gradient->contiguous()) : at::Tensor(),
        {AsRows(sum), {}, inverses.flatten()}, weight);
    return {found.x.view(sum.sizes()), found.weight};
  }
  const at::Tensor normalized = sum.to(at::kFloat) * inverses;
  const at::Tensor by_weight =
      (gradient * normalized.to(sum.scalar_type())).flatten(0, -2).sum(0).to(weight.scalar_type());
  const at::Tensor by_normalized = (gradient * weight).to(at::kFloat);
  const at::Tensor along = (by_normalized * normalized).mean(-1, /*keepdim=*/true);
  at::Tensor by_sum = ((by_normalized - normalized * along) * inverses).to(sum.scalar_type());
  if (sum_gradient) by_sum.add_(*sum_gradient);
  return {by_sum, by_weight};
}

TORCH_LIBRARY_FRAGMENT(dslaunch, library) {
  library.def(
      "rms_norm(Tensor x, Tensor? branch, Tensor weight, float epsilon) -> (Tensor, Tensor, "
      "Tensor)");
  library.def(
      "rms_norm_gradients(Tensor gradient, Tensor? sum_gradient, Tensor sum, Tensor inverses, "
      "Tensor weight) -> (Tensor, Tensor)");
}
TORCH_LIBRARY_IMPL(dslaunch, CompositeExplicitAutograd, library) {
  library.impl("rms_norm", &RunForward);
  library.impl("rms_norm_gradients", &RunBackward);
}

// Autograd function that returns {sum, normalized}. Without a branch the sum is x.
struct RmsNorm : autograd::Function<RmsNorm> {
  static autograd::variable_list forward(autograd::AutogradContext* context, const at::Tensor& x,
                                         const std::optional<at::Tensor>& branch,
                                         const at::Tensor& weight, double epsilon) {
    static const auto run = NamedOperator<decltype(RunForward)>("dslaunch::rms_norm");
    const auto [sums, normalized, inverses] = run.call(x, branch, weight, epsilon);
    const at::Tensor sum = branch ? sums : x;
    context->saved_data["has_branch"] = branch.has_value();
    context->save_for_backward({sum, inverses, weight});
    context->set_materialize_grads(false);
    return {sum, normalized};
  }

  static autograd::variable_list backward(autograd::AutogradContext* context,
                                          const autograd::variable_list& gradients) {
    const at::Tensor &of_sum = gradients[0], &of_normalized = gradients[1];
    const bool has_branch = context->saved_data["has_branch"].toBool();
    const auto results = [&](const at::Tensor& by_sum, const at::Tensor& by_weight) {
      return autograd::variable_list{by_sum, has_branch ? by_sum : at::Tensor(), by_weight, {}};
    };
    if (!of_normalized.defined()) return results(of_sum, {});
    static const auto run = NamedOperator<decltype(RunBackward)>("dslaunch::rms_norm_gradients");
    const autograd::variable_list saved = context->get_saved_variables();
    const auto [by_sum, by_weight] =
        run.call(of_normalized, of_sum.defined() ? std::optional(of_sum) : std::nullopt, saved[0],
                 saved[1], saved[2]);
    return results(by_sum, by_weight);
  }
};

}  // namespace

at::Tensor ApplyRmsNorm(const at::Tensor& x, const at::Tensor& weight, double epsilon) {
  return RmsNorm::apply(x, std::nullopt, weight, epsilon)[1];
}

NormalizedSum AddAndRmsNorm(const at::Tensor& x, const at::Tensor& branch, const at::Tensor& weight,
                            double epsilon) {
  const autograd::variable_list found =
      RmsNorm::apply(x, branch.defined() ? std::optional(branch) : std::nullopt, weight, epsilon);
  return {found[0], found[1]};
}

}  // namespace dslaunch
