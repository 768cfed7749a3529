#include "trainer/nn/onednn_product.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "dslaunch/autocast.h"

namespace dslaunch::onednn_product_test {
namespace {

constexpr int64_t kRows = 96, kIn = 128, kOut = 160;

// Returns the same matrix in column-major order.
at::Tensor ByColumns(const at::Tensor& matrix) { return matrix.t().contiguous().t(); }

void ExpectProduct(const at::Tensor& x, const at::Tensor& m, const at::Tensor& bias) {
  const std::optional<at::Tensor> found = OneDnnProduct(x, m, bias);
  ASSERT_TRUE(found);
  at::Tensor wanted = x.to(at::kDouble).mm(m.to(at::kDouble));
  if (bias.defined()) wanted += bias.to(at::kDouble);
  EXPECT_EQ(found->scalar_type(), at::kFloat);
  EXPECT_FALSE(found->requires_grad());
  EXPECT_TRUE(at::allclose(found->to(at::kDouble), wanted, /*rtol=*/1e-5, /*atol=*/1e-4));
}

TEST(OneDnnProductTest, ReturnsProduct) {
  at::manual_seed(1);
  const at::Tensor x = at::randn({kRows, kIn}), bias = at::randn({kOut});
  for (const at::Tensor& m : {at::randn({kIn, kOut}), ByColumns(at::randn({kIn, kOut}))}) {
    ExpectProduct(x, m, bias);
    ExpectProduct(x, m, {});
    EXPECT_TRUE(at::equal(*OneDnnProduct(x, m, bias), *OneDnnProduct(x, m, bias)));
  }
}

TEST(OneDnnProductTest, RejectsUnsuitableProducts) {
  at::manual_seed(1);
  const at::Tensor x = at::randn({kRows, kIn}), m = at::randn({kIn, kOut}),
                   bias = at::randn({kOut});
  EXPECT_FALSE(OneDnnProduct(x.to(at::kDouble), m.to(at::kDouble)));
  EXPECT_FALSE(OneDnnProduct(x.to(at::kBFloat16), m.to(at::kBFloat16)));
  EXPECT_FALSE(OneDnnProduct(x, m, bias.to(at::kDouble)));
  EXPECT_FALSE(OneDnnProduct(x.slice(0, 0, 2), m)) << "small";
  EXPECT_FALSE(OneDnnProduct(x.slice(0, 0, 0), m)) << "empty";
  EXPECT_FALSE(OneDnnProduct(ByColumns(x), m));
  EXPECT_FALSE(OneDnnProduct(x, at::randn({kIn, 2 * kOut}).slice(1, 0, kOut))) << "gaps";
  const AutocastScope autocast(at::kBFloat16);
  EXPECT_FALSE(OneDnnProduct(x, m));
}

TEST(OneDnnProductTest, RejectsProductsThatAutogradMustSee) {
  const at::Tensor x = at::ones({kRows, kIn}), m = at::ones({kIn, kOut}), bias = at::ones({kOut});
  for (const at::Tensor& seen : {x, m, bias}) {
    seen.requires_grad_();
    EXPECT_FALSE(OneDnnProduct(x, m, bias));
    const at::NoGradGuard no_grad;
    EXPECT_TRUE(OneDnnProduct(x, m, bias));
    seen.requires_grad_(false);
  }
  EXPECT_TRUE(OneDnnProduct(x, m, bias));
}

}  // namespace
}  // namespace dslaunch::onednn_product_test
