#include "trainer/nn/rotate_heads.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "trainer/device/fused_kernels.h"

namespace dslaunch {
namespace {

namespace autograd = torch::autograd;

at::Tensor Rotated(const at::Tensor& x, const at::Tensor& cosines, const at::Tensor& sines,
                   double direction) {
  if (FusedKernels* const kernels = FusedKernelsFor(x);
      kernels != nullptr && cosines.scalar_type() == x.scalar_type()) {
    const auto table = [&](const at::Tensor& sides) {
      return sides.contiguous().view({-1, sides.size(-1)});
    };
    return kernels->Rotate(x, table(cosines), table(sines), direction);
  }
  const std::vector<at::Tensor> halves = x.chunk(2, -1);
  const at::Tensor rotated = at::empty(x.sizes(), x.options());
  const std::vector<at::Tensor> results = rotated.chunk(2, -1);
  for (const size_t i : {0, 1}) {
    const double sign = i == 0 ? -direction : direction;
    at::Tensor result = results[i];
    at::mul_out(result, halves[i], cosines);
    result.addcmul_(halves[1 - i], sines, sign);
  }
  return rotated;
}

// Autograd function that saves no activation. The gradient with respect to x is the result's
// gradient, rotated in the opposite direction.
struct Rotation : autograd::Function<Rotation> {
  static at::Tensor forward(autograd::AutogradContext* context, const at::Tensor& x,
                            const at::Tensor& cosines, const at::Tensor& sines) {
    context->save_for_backward({cosines, sines});
    return Rotated(x, cosines, sines, 1);
  }
  static autograd::variable_list backward(autograd::AutogradContext* context,
                                          const autograd::variable_list& gradients) {
    const autograd::variable_list saved = context->get_saved_variables();
    return {Rotated(gradients[0], saved[0], saved[1], -1), {}, {}};
  }
};

}  // namespace

at::Tensor RotateHeads(const at::Tensor& x, const at::Tensor& cosines, const at::Tensor& sines) {
  if (cosines.dim() == 3) return Rotation::apply(x, cosines, sines);
  // The kernels take only one table for all samples, so the samples are merged into one.
  return Rotation::apply(x.flatten(0, 1).unsqueeze(0), cosines.flatten(0, 1), sines.flatten(0, 1))
      .view(x.sizes());
}

}  // namespace dslaunch
