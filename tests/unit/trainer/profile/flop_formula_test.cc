#include "trainer/profile/flop_formula.h"

#include <gtest/gtest.h>

#include "trainer/profile/peak_flops.h"

namespace dslaunch::flop_formula_test {
namespace {

TEST(FlopFormulaTest, CountsProducts) {
  EXPECT_EQ(OperatorFlops("aten::mm", {.inputs = {{3, 4}, {4, 5}}, .output = {3, 5}}), 120);
  EXPECT_EQ(OperatorFlops("aten::bmm", {.inputs = {{2, 3, 4}, {2, 4, 5}}, .output = {}}), 240);
  EXPECT_EQ(OperatorFlops("aten::mv", {.inputs = {{3, 4}, {4}}, .output = {3}}), 24);
  EXPECT_EQ(OperatorFlops("aten::addmm", {.inputs = {{5}, {3, 4}, {4, 5}}, .output = {}}), 120);
  EXPECT_EQ(
      OperatorFlops("mkldnn::_linear_pointwise", {.inputs = {{3, 4}, {5, 4}, {5}}, .output = {}}),
      120);
}

TEST(FlopFormulaTest, CountsConvolutions) {
  const Shape image = {2, 3, 8, 8}, weight = {6, 3, 3, 3};
  EXPECT_EQ(
      OperatorFlops("aten::convolution", {.inputs = {image, weight, {6}}, .output = {2, 6, 4, 4}}),
      2.0 * (2 * 6 * 4 * 4) * (3 * 3 * 3));
  // If transposed, a filter has sizes [in, out, ...] and applies to each element of the input.
  EXPECT_EQ(OperatorFlops("aten::convolution",
                          {.inputs = {{2, 6, 4, 4}, weight}, .output = image, .transposed = true}),
            2.0 * (2 * 6 * 4 * 4) * (3 * 3 * 3));
}

TEST(FlopFormulaTest, CountsAttention) {
  const Shape query = {2, 4, 16, 8}, keys = {2, 4, 32, 8};
  EXPECT_EQ(OperatorFlops("aten::_scaled_dot_product_flash_attention_for_cpu",
                          {.inputs = {query, keys, keys}, .output = query}),
            2 * (2.0 * 2 * 4 * 16 * 32 * 8));
}

TEST(FlopFormulaTest, CountsNothingForOtherShapesAndOperators) {
  EXPECT_EQ(OperatorFlops("aten::add", {.inputs = {{3}, {3}}, .output = {3}}), 0);
  EXPECT_EQ(OperatorFlops("aten::mm", {.inputs = {{3, 4}}, .output = {}}), 0);
  EXPECT_EQ(OperatorFlops("aten::mm", {.inputs = {{}, {}}, .output = {}}), 0);
  EXPECT_EQ(OperatorFlops("aten::convolution", {.inputs = {{}, {}}, .output = {}}), 0);
}

TEST(PeakFlopsTest, ReturnsRateByNameAndDtype) {
  EXPECT_EQ(PeakFlops("NVIDIA H100 80GB HBM3", Dtype::kBFloat16), 989.4e12);
  EXPECT_EQ(PeakFlops("NVIDIA H100 PCIe", Dtype::kFloat16), 756e12);
  EXPECT_EQ(PeakFlops("NVIDIA A100-SXM4-40GB", Dtype::kFloat32), 19.5e12);
  EXPECT_EQ(PeakFlops("NVIDIA L40S", Dtype::kBFloat16), 362e12);
  EXPECT_EQ(PeakFlops("Tesla V100-SXM2-16GB", Dtype::kBFloat16), std::nullopt) << "it has none";
  EXPECT_EQ(PeakFlops("Intel Xeon", Dtype::kFloat32), std::nullopt);
}

}  // namespace
}  // namespace dslaunch::flop_formula_test
