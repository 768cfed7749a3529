// Tests a sum and its layer normalization with a device's fused kernels, and gradients through one
// or both results. The kernels of the test call LibTorch on the CPU.
#include "trainer/nn/layer_norm.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "tests/support/cuda/libtorch_kernels.h"

namespace dslaunch::layer_norm_test {
namespace {

using Tensors = std::vector<at::Tensor>;

constexpr int64_t kColumns = 16;  // a width that the kernels support

// Returns the gradients of x, branch, weight and bias.
Tensors GradientsOf(bool fused, bool with_branch, bool uses_sum, bool uses_normalized) {
  at::manual_seed(7);
  torch::nn::LayerNorm layer(torch::nn::LayerNormOptions({kColumns}));
  layer->weight.data().uniform_(0.5, 1.5);
  layer->bias.data().normal_();
  const at::Tensor x = at::randn({3, 5, kColumns}).requires_grad_();
  const at::Tensor branch = at::randn({3, 5, kColumns}).requires_grad_();
  const at::Tensor one = at::randn({3, 5, kColumns}), other = at::randn({3, 5, kColumns});
  at::Tensor sum = with_branch ? x + branch : x, normalized;
  if (fused) {
    const NormalizedSum found = AddAndNormalize(layer, x, with_branch ? branch : at::Tensor());
    EXPECT_TRUE(at::allclose(found.sum, sum));
    sum = found.sum;
    normalized = found.normalized;
  } else {
    normalized = layer(sum);
  }
  at::Tensor loss = at::zeros({});
  if (uses_sum) loss = loss + (sum * one).sum();
  if (uses_normalized) loss = loss + (normalized * other).sum();
  loss.backward();
  return {x.grad(), branch.grad(), layer->weight.grad(), layer->bias.grad()};
}

TEST(LayerNormTest, GradientsMatchSumAndNorm) {
  StartFusedKernels(c10::kCPU, /*reports_error=*/true, &MakeLibtorchKernels);
  for (const bool with_branch : {false, true}) {
    for (const auto& [uses_sum, uses_normalized] :
         std::vector<std::pair<bool, bool>>{{true, true}, {false, true}, {true, false}}) {
      SCOPED_TRACE(testing::Message() << with_branch << uses_sum << uses_normalized);
      const Tensors ours = GradientsOf(true, with_branch, uses_sum, uses_normalized);
      const Tensors theirs = GradientsOf(false, with_branch, uses_sum, uses_normalized);
      for (size_t i = 0; i < ours.size(); ++i) {
        ASSERT_EQ(ours[i].defined(), theirs[i].defined()) << i;
        if (ours[i].defined()) EXPECT_TRUE(at::allclose(ours[i], theirs[i], 1e-5, 1e-6)) << i;
      }
    }
  }
}

TEST(LayerNormTest, UsesLibTorchWithoutKernel) {
  StartFusedKernels(c10::kCPU, /*reports_error=*/true, &MakeLibtorchKernels);
  torch::nn::LayerNorm layer(torch::nn::LayerNormOptions({kColumns + 1}));
  const at::Tensor x = at::randn({3, kColumns + 1});
  EXPECT_TRUE(ApplyLayerNorm(layer, x).equal(layer(x)));
  torch::nn::LayerNorm fits(torch::nn::LayerNormOptions({kColumns}));
  const at::Tensor wide = at::randn({3, kColumns}, at::kDouble);
  fits->to(at::kDouble);
  EXPECT_TRUE(ApplyLayerNorm(fits, wide).equal(fits(wide)));
}

}  // namespace
}  // namespace dslaunch::layer_norm_test
