// Tests that the cross entropy without an fp32 copy of the logits equals LibTorch's.
#include "trainer/nn/cross_entropy.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace dslaunch::cross_entropy_test {
namespace {

struct Result {
  at::Tensor loss, gradient;  // both in fp64
};

template <typename Loss>
Result Of(const at::Tensor& values, const Loss& loss_of) {
  at::Tensor logits = values.detach().clone().requires_grad_();
  const at::Tensor loss = loss_of(logits);
  (loss * 32).backward();
  return {loss.detach().to(at::kDouble), logits.grad().to(at::kDouble)};
}

void ExpectAlike(const at::Tensor& values, const at::Tensor& targets, int64_t reduction) {
  const Result ours = Of(values, [&](const at::Tensor& logits) {
    return CrossEntropyOfLogits(logits, targets, reduction);
  });
  const Result theirs = Of(values.to(at::kDouble), [&](const at::Tensor& logits) {
    return at::cross_entropy_loss(logits.flatten(0, -2), targets.flatten(), {}, reduction);
  });
  EXPECT_EQ(ours.loss.dim(), 0);
  EXPECT_TRUE(at::allclose(ours.loss, theirs.loss, 1e-5, 1e-6)) << ours.loss << theirs.loss;
  const double size = theirs.gradient.norm().item<double>();
  const double within = values.scalar_type() == at::kFloat ? 1e-5 : 4e-3;
  EXPECT_LE((ours.gradient - theirs.gradient).norm().item<double>(), within * size)
      << values.sizes() << " " << values.scalar_type();
}

TEST(CrossEntropyTest, MatchesLibTorch) {
  at::manual_seed(20261126);
  for (const at::ScalarType type : {at::kFloat, at::kHalf, at::kBFloat16}) {
    const at::Tensor values = (at::randn({3, 5, 11}) * 3).to(type);
    at::Tensor targets = at::randint(11, {3, 5}, at::kLong);
    targets[1][2] = -100;
    ExpectAlike(values, targets, at::Reduction::Mean);
    ExpectAlike(values, targets, at::Reduction::Sum);
  }
}

TEST(CrossEntropyTest, MatchesLibTorchWithSeveralParts) {
  at::manual_seed(20261126);
  // The loss is computed in parts of 333 rows.
  const at::Tensor values = at::randn({700, 50304}).to(at::kBFloat16);
  ExpectAlike(values, at::randint(50304, {700}, at::kLong), at::Reduction::Mean);
}

TEST(CrossEntropyTest, MeanWithoutTargetsIsNan) {
  const at::Tensor values = at::randn({4, 8}).to(at::kBFloat16);
  const at::Tensor targets = at::full({4}, -100, at::kLong);
  EXPECT_TRUE(CrossEntropyOfLogits(values, targets).isnan().item<bool>());
  EXPECT_EQ(CrossEntropyOfLogits(values, targets, at::Reduction::Sum).item<float>(), 0);
}

TEST(CrossEntropyTest, RejectsTargetOutOfRange) {
  const at::Tensor values = at::randn({4, 8}).to(at::kBFloat16);
  EXPECT_THROW(CrossEntropyOfLogits(values, at::full({4}, 8, at::kLong)), c10::Error);
}

}  // namespace
}  // namespace dslaunch::cross_entropy_test
