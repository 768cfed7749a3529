#include "trainer/nn/swiglu.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "trainer/device/fused_kernels.h"

namespace dslaunch {
namespace {

namespace autograd = torch::autograd;

// Autograd function that uses the device's kernels. Precondition: FusedKernelsFor(gate) is not
// null.
struct SwiGlu : autograd::Function<SwiGlu> {
  static at::Tensor forward(autograd::AutogradContext* context, const at::Tensor& gate,
                            const at::Tensor& up) {
    context->save_for_backward({gate, up});
    return FusedKernelsFor(gate)->SwiGlu(gate, up);
  }
  static autograd::variable_list backward(autograd::AutogradContext* context,
                                          const autograd::variable_list& gradients) {
    const autograd::variable_list saved = context->get_saved_variables();
    const FusedKernels::SwiGluInputs found =
        FusedKernelsFor(saved[0])->GradientsOfSwiGlu(gradients[0].contiguous(), saved[0], saved[1]);
    return {found.gate, found.up};
  }
};

}  // namespace

at::Tensor ApplySwiGlu(const at::Tensor& gate, const at::Tensor& up) {
  const bool fits = FusedKernelsFor(gate) != nullptr && FusedKernelsFor(up) != nullptr &&
                    gate.scalar_type() == up.scalar_type();
  return fits ? SwiGlu::apply(gate, up) : at::silu(gate) * up;
}

}  // namespace dslaunch
