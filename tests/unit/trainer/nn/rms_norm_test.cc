#include "trainer/nn/rms_norm.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace dslaunch::rms_norm_test {
namespace {

constexpr double kEpsilon = 1e-3;

// Computes the formula of transformers' LlamaRMSNorm.
at::Tensor Formula(const at::Tensor& x, const at::Tensor& weight) {
  const at::Tensor wide = x.to(at::kFloat);
  const at::Tensor variance = wide.pow(2).mean(-1, /*keepdim=*/true);
  return weight * (wide * at::rsqrt(variance + kEpsilon)).to(x.scalar_type());
}

TEST(RmsNormTest, MatchesFormulaAndItsGradients) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    SCOPED_TRACE(toString(type));
    at::manual_seed(7);
    const at::Tensor x = at::randn({3, 5, 16}).to(type), weight = (at::rand({16}) + 0.5).to(type);
    const at::Tensor coefficients = at::randn({3, 5, 16}).to(type);
    const auto run = [&](const auto& norm) {
      const at::Tensor own_x = x.clone().requires_grad_(),
                       own_weight = weight.clone().requires_grad_();
      const at::Tensor normalized = norm(own_x, own_weight);
      (normalized * coefficients).sum().backward();
      return std::vector<at::Tensor>{normalized.detach(), own_x.grad(), own_weight.grad()};
    };
    const auto ours =
        run([](const at::Tensor& a, const at::Tensor& b) { return ApplyRmsNorm(a, b, kEpsilon); });
    const auto theirs = run(Formula);
    EXPECT_TRUE(ours[0].equal(theirs[0])) << "rounds otherwise";
    const double within = type == at::kFloat ? 1e-6 : 2e-2;
    for (const size_t i : {1, 2}) {
      EXPECT_EQ(ours[i].scalar_type(), type);
      EXPECT_TRUE(at::allclose(ours[i], theirs[i], within, within)) << i;
    }
  }
}

TEST(RmsNormTest, PromotesToWiderWeights) {
  const at::Tensor x = at::randn({4, 16}).to(at::kBFloat16).requires_grad_();
  const at::Tensor weight = at::rand({16}).requires_grad_();
  const at::Tensor normalized = ApplyRmsNorm(x, weight, kEpsilon);
  EXPECT_EQ(normalized.scalar_type(), at::kFloat);
  normalized.sum().backward();
  EXPECT_EQ(x.grad().scalar_type(), at::kBFloat16);
  EXPECT_EQ(weight.grad().scalar_type(), at::kFloat);
}

}  // namespace
}  // namespace dslaunch::rms_norm_test
