#include "trainer/nn/rms_norm.h"

#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <tuple>

namespace dslaunch {
namespace {

namespace autograd = torch::autograd;

using Tensors2 = std::tuple<at::Tensor, at::Tensor>;

// The two kernels are registered as LibTorch operators for the reason that layer_norm.cc gives.

// Returns {normalized x times weight, 1 / sqrt(mean square + epsilon) [..., 1] in fp32}.
Tensors2 RunForward(const at::Tensor& x, const at::Tensor& weight, double epsilon) {
  const at::Tensor wide = x.to(at::kFloat);
  const at::Tensor inverses = wide.square().mean(-1, /*keepdim=*/true).add_(epsilon).rsqrt_();
  return {weight * (wide * inverses).to(x.scalar_type()), inverses};
}

// Returns the gradients by {x, weight}.
Tensors2 RunBackward(const at::Tensor& gradient, const at::Tensor& x, const at::Tensor& inverses,
                     const at::Tensor& weight) {
  const at::Tensor normalized = x.to(at::kFloat) * inverses;
  const at::Tensor by_weight =
      (gradient * normalized.to(x.scalar_type())).flatten(0, -2).sum(0).to(weight.scalar_type());
  const at::Tensor by_normalized = (gradient * weight).to(at::kFloat);
  const at::Tensor along = (by_normalized * normalized).mean(-1, /*keepdim=*/true);
  return {((by_normalized - normalized * along) * inverses).to(x.scalar_type()), by_weight};
}

TORCH_LIBRARY_FRAGMENT(dslaunch, library) {
  library.def("rms_norm(Tensor x, Tensor weight, float epsilon) -> (Tensor, Tensor)");
  library.def(
      "rms_norm_gradients(Tensor gradient, Tensor x, Tensor inverses, Tensor weight) -> "
      "(Tensor, Tensor)");
}
TORCH_LIBRARY_IMPL(dslaunch, CompositeExplicitAutograd, library) {
  library.impl("rms_norm", &RunForward);
  library.impl("rms_norm_gradients", &RunBackward);
}

struct RmsNorm : autograd::Function<RmsNorm> {
  static at::Tensor forward(autograd::AutogradContext* context, const at::Tensor& x,
                            const at::Tensor& weight, double epsilon) {
    static const auto run = c10::Dispatcher::singleton()
                                .findSchemaOrThrow("dslaunch::rms_norm", "")
                                .typed<decltype(RunForward)>();
    const auto [normalized, inverses] = run.call(x, weight, epsilon);
    context->save_for_backward({x, inverses, weight});
    return normalized;
  }

  static autograd::variable_list backward(autograd::AutogradContext* context,
                                          const autograd::variable_list& gradients) {
    static const auto run = c10::Dispatcher::singleton()
                                .findSchemaOrThrow("dslaunch::rms_norm_gradients", "")
                                .typed<decltype(RunBackward)>();
    const autograd::variable_list saved = context->get_saved_variables();
    const auto [by_x, by_weight] = run.call(gradients[0], saved[0], saved[1], saved[2]);
    return {by_x, by_weight, {}};
  }
};

}  // namespace

at::Tensor ApplyRmsNorm(const at::Tensor& x, const at::Tensor& weight, double epsilon) {
  return RmsNorm::apply(x, weight, epsilon);
}

}  // namespace dslaunch
