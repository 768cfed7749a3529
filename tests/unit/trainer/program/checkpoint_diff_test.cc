#include "trainer/program/checkpoint_diff.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

namespace dslaunch::checkpoint_diff_test {
namespace {

constexpr double kInf = INFINITY, kNan = NAN;

void ExpectDifference(const at::Tensor& a, const at::Tensor& b, double absolute, double relative) {
  const LargestDifference found = DifferenceOf(a, b);
  EXPECT_EQ(found.absolute, absolute) << a << b;
  EXPECT_EQ(found.relative, relative) << a << b;
}

at::Tensor Row(std::initializer_list<double> values) { return at::tensor(values, at::kDouble); }

TEST(CheckpointDiffTest, FindsLargestAbsoluteAndRelativeDifference) {
  ExpectDifference(Row({1, 2}), Row({1, 2}), 0, 0);
  ExpectDifference(Row({100, 1}), Row({101, 2}), 1, 0.5);
  ExpectDifference(Row({100, 1}), Row({110, 1.5}), 10, 0.5 / 1.5);
  ExpectDifference(Row({-3}), Row({3}), 6, 2);
  ExpectDifference(Row({}), Row({}), 0, 0);
}

TEST(CheckpointDiffTest, ComparesOtherFormats) {
  ExpectDifference(at::tensor({1.0f}).to(at::kBFloat16), at::tensor({1.5f}), 0.5, 0.5 / 1.5);
  ExpectDifference(at::tensor({1, 0}).to(at::kBool), at::tensor({1, 1}).to(at::kBool), 1, 1);
  ExpectDifference(at::tensor({int64_t{7}}), at::tensor({int64_t{5}}), 2, 2.0 / 7);
}

TEST(CheckpointDiffTest, NansAndInfinitiesAreEqualOnlyToThemselves) {
  ExpectDifference(Row({kNan, kInf, -kInf, 0}), Row({kNan, kInf, -kInf, -0.0}), 0, 0);
  ExpectDifference(Row({kNan}), Row({1}), kInf, kInf);
  ExpectDifference(Row({kInf}), Row({-kInf}), kInf, kInf);
  ExpectDifference(Row({1}), Row({kInf}), kInf, kInf);
}

}  // namespace
}  // namespace dslaunch::checkpoint_diff_test
