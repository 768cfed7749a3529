// Tests RMS norm, rotation and SwiGLU with a device's fused kernels. The kernels of the test call
// LibTorch on the CPU.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <functional>

#include "tests/support/cuda/libtorch_kernels.h"
#include "trainer/nn/rms_norm.h"
#include "trainer/nn/rotate_heads.h"
#include "trainer/nn/swiglu.h"

namespace dslaunch::fused_decoder_test {
namespace {

using Tensors = std::vector<at::Tensor>;

constexpr double kEpsilon = 1e-5;

at::Tensor Formula(const at::Tensor& x, const at::Tensor& weight) {
  return weight * (x * (x.square().mean(-1, true) + kEpsilon).rsqrt());
}

void ExpectClose(const Tensors& ours, const Tensors& theirs) {
  ASSERT_EQ(ours.size(), theirs.size());
  for (size_t i = 0; i < ours.size(); ++i) {
    ASSERT_EQ(ours[i].defined(), theirs[i].defined()) << i;
    if (ours[i].defined()) EXPECT_TRUE(at::allclose(ours[i], theirs[i], 1e-5, 1e-6)) << i;
  }
}

// Returns the result of `run` and the gradients of `inputs`. The inputs are copied first, so they
// need not require gradients.
Tensors ResultAndGradients(const Tensors& inputs,
                           const std::function<at::Tensor(const Tensors&)>& run) {
  Tensors own;
  for (const at::Tensor& input : inputs) own.push_back(input.clone().requires_grad_());
  const at::Tensor result = run(own);
  result.backward(at::linspace(-1, 1, result.numel()).view(result.sizes()));
  Tensors found = {result.detach()};
  for (const at::Tensor& leaf : own) found.push_back(leaf.grad());
  return found;
}

// Returns the gradients of x, branch and weight. `ours`: whether the fused function is used.
Tensors GradientsOfSumAndNorm(bool ours, int64_t columns, bool with_branch, bool uses_sum,
                              bool uses_normalized) {
  at::manual_seed(7);
  const at::Tensor x = at::randn({3, 5, columns}).requires_grad_();
  const at::Tensor branch = at::randn({3, 5, columns}).requires_grad_();
  const at::Tensor weight = (at::rand({columns}) + 0.5).requires_grad_();
  const at::Tensor one = at::randn({3, 5, columns}), other = at::randn({3, 5, columns});
  at::Tensor sum = with_branch ? x + branch : x, normalized;
  if (ours) {
    const NormalizedSum found =
        AddAndRmsNorm(x, with_branch ? branch : at::Tensor(), weight, kEpsilon);
    EXPECT_TRUE(at::allclose(found.sum, sum));
    sum = found.sum;
    normalized = found.normalized;
  } else {
    normalized = Formula(sum, weight);
  }
  at::Tensor loss = at::zeros({});
  if (uses_sum) loss = loss + (sum * one).sum();
  if (uses_normalized) loss = loss + (normalized * other).sum();
  loss.backward();
  return {x.grad(), branch.grad(), weight.grad()};
}

class FusedDecoderTest : public testing::Test {
 protected:
  void SetUp() override {
    StartFusedKernels(c10::kCPU, /*reports_error=*/true, &MakeLibtorchKernels);
    at::manual_seed(7);
  }
};

TEST_F(FusedDecoderTest, GradientsMatchSumAndRmsNorm) {
  for (const int64_t columns : {16, 17}) {  // the kernels support 16 columns, not 17
    for (const bool with_branch : {false, true}) {
      for (const auto& [uses_sum, uses_normalized] :
           std::vector<std::pair<bool, bool>>{{true, true}, {false, true}, {true, false}}) {
        SCOPED_TRACE(testing::Message() << columns << with_branch << uses_sum << uses_normalized);
        ExpectClose(GradientsOfSumAndNorm(true, columns, with_branch, uses_sum, uses_normalized),
                    GradientsOfSumAndNorm(false, columns, with_branch, uses_sum, uses_normalized));
      }
    }
  }
}

TEST_F(FusedDecoderTest, SwiGluMatchesSiluTimesUp) {
  const Tensors inputs = {at::randn({3, 5, 16}), at::randn({3, 5, 16})};
  ExpectClose(ResultAndGradients(inputs, [](const Tensors& x) { return ApplySwiGlu(x[0], x[1]); }),
              ResultAndGradients(inputs, [](const Tensors& x) { return at::silu(x[0]) * x[1]; }));
}

TEST_F(FusedDecoderTest, RotationMatchesFormula) {
  const at::Tensor angles = at::randn({5, 1, 4});
  const at::Tensor cosines = angles.cos(), sines = angles.sin();
  const Tensors inputs = {at::randn({2, 5, 3, 8})};
  const auto formula = [&](const Tensors& x) {
    const Tensors halves = x[0].chunk(2, -1);
    return at::cat(
        {halves[0] * cosines - halves[1] * sines, halves[1] * cosines + halves[0] * sines}, -1);
  };
  ExpectClose(ResultAndGradients(
                  inputs, [&](const Tensors& x) { return RotateHeads(x[0], cosines, sines); }),
              ResultAndGradients(inputs, formula));
}

}  // namespace
}  // namespace dslaunch::fused_decoder_test
