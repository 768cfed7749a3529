// Tests that a product fused with the following operation equals LibTorch's separate operators,
// with immediate and with deferred weight gradients. The kernels of the test call LibTorch on the
// CPU.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <functional>
#include <optional>

#include "tests/support/cuda/libtorch_kernels.h"
#include "trainer/nn/split_backward.h"

namespace dslaunch::fused_product_test {
namespace {

using Tensors = std::vector<at::Tensor>;

struct Layer {
  explicit Layer(at::ScalarType type) {
    at::manual_seed(5);
    x = at::randn({3, 5, 7}).to(type).requires_grad_();
    weight = at::randn({7, 12}).to(type).requires_grad_();
    bias = at::randn({12}).to(type).requires_grad_();
  }

  at::Tensor x, weight, bias;
};

using Outcome = std::function<at::Tensor(const Layer&)>;

// Returns the results of `outcome`, and the gradients of x, weight and bias.
Tensors ResultsOf(const Outcome& outcome, at::ScalarType type, bool deferred) {
  const Layer layer(type);
  const at::Tensor y = outcome(layer);
  WeightGradients later;
  {
    std::optional<DeferWeightGradients> scope;
    if (deferred) scope.emplace(later);
    (y.to(at::kFloat) * at::arange(y.numel()).view(y.sizes())).sum().backward();
  }
  EXPECT_NE(deferred, later.empty());
  EXPECT_NE(deferred, layer.weight.grad().defined());
  later.Compute();
  return {y.detach(), layer.x.grad(), layer.weight.grad(), layer.bias.grad()};
}

class FusedProductTest : public testing::Test {
 protected:
  static void WithKernels() {
    StartFusedKernels(c10::kCPU, /*reports_error=*/true, &MakeLibtorchKernels);
  }
  static void WithoutKernels() {
    StartFusedKernels(c10::kCPU, /*reports_error=*/false,
                      []() -> std::unique_ptr<FusedKernels> { TORCH_CHECK(false, "none"); });
  }
  void TearDown() override { WithoutKernels(); }

  static void ExpectSame(const Outcome& outcome) {
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
      WithoutKernels();
      const Tensors wanted = ResultsOf(outcome, type, /*deferred=*/false);
      WithKernels();
      for (const bool deferred : {false, true}) {
        const Tensors got = ResultsOf(outcome, type, deferred);
        for (size_t i = 0; i < wanted.size(); ++i) {
          EXPECT_TRUE(at::allclose(got[i], wanted[i], type == at::kFloat ? 1e-5 : 2e-2, 1e-4))
              << type << ", deferred " << deferred << ", tensor " << i;
          EXPECT_EQ(got[i].scalar_type(), type);
        }
      }
    }
  }
};

TEST_F(FusedProductTest, GeluMatchesLibTorch) {
  ExpectSame([](const Layer& l) { return ApplyConv1DAndGelu(l.x, l.weight, l.bias); });
}

TEST_F(FusedProductTest, ThreeOutputsMatchLibTorch) {
  ExpectSame([](const Layer& l) {
    const auto [first, second, third] = ApplyConv1DInThirds(l.x, l.weight, l.bias);
    // Makes a gradient that is not a plain matrix in memory, like attention's.
    return at::cat({second.transpose(0, 1), (first * third).transpose(0, 1)}, 2);
  });
}

TEST_F(FusedProductTest, HandlesUnusedOutput) {
  ExpectSame([](const Layer& l) { return ApplyConv1DInThirds(l.x, l.weight, l.bias)[1]; });
}

TEST_F(FusedProductTest, GivesSameBitsWithoutGradients) {
  WithKernels();
  const Layer layer(at::kBFloat16);
  const at::Tensor trained = ApplyConv1DAndGelu(layer.x, layer.weight, layer.bias);
  const at::NoGradGuard no_grad;
  EXPECT_TRUE(ApplyConv1DAndGelu(layer.x, layer.weight, layer.bias).equal(trained));
}

TEST_F(FusedProductTest, RejectsSecondDerivatives) {
  WithKernels();
  const Layer layer(at::kFloat);
  const at::Tensor y = ApplyConv1DAndGelu(layer.x, layer.weight, layer.bias);
  EXPECT_THROW(torch::autograd::grad({y.sum()}, {layer.x}, {}, /*retain_graph=*/true,
                                     /*create_graph=*/true),
               c10::Error);
}

}  // namespace
}  // namespace dslaunch::fused_product_test
