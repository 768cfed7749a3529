#include "trainer/nn/causal_attention.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <vector>

namespace dslaunch::causal_attention_test {
namespace {

// bool [2, 1, length, length]: another window for each sample
at::Tensor Windows(int64_t length) {
  const at::Tensor past = at::ones({length, length}, at::kBool).tril();
  return at::stack({past.triu(-2), past.triu(-4)}).unsqueeze(1);
}

std::vector<at::Tensor> Inputs(int64_t length, at::ScalarType type) {
  std::vector<at::Tensor> inputs;
  for (const int64_t heads : {4, 2, 2}) {
    inputs.push_back(at::randn({2, length, heads, 16}).to(type).requires_grad_());
  }
  return inputs;
}

// The output, and the gradients of the inputs.
std::vector<at::Tensor> Results(const std::vector<at::Tensor>& inputs, const at::Tensor& mask) {
  const at::Tensor output = CausalAttention(inputs[0], inputs[1], inputs[2], mask, 0.0);
  output.sum().backward();
  std::vector<at::Tensor> results = {output};
  for (const at::Tensor& input : inputs) {
    results.push_back(input.grad().clone());
    input.mutable_grad().reset();
  }
  return results;
}

TEST(CausalAttentionTest, AdditiveMaskActsAsBoolMask) {
  at::manual_seed(3);
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    for (const int64_t length : {13, 64}) {
      const std::vector<at::Tensor> inputs = Inputs(length, type);
      const std::vector<at::Tensor> wanted = Results(inputs, Windows(length));
      const std::vector<at::Tensor> found = Results(inputs, AdditiveMask(Windows(length), type));
      for (size_t i = 0; i < wanted.size(); ++i) {
        EXPECT_TRUE(at::equal(found[i], wanted[i])) << type << ", " << length << ", tensor " << i;
      }
    }
  }
}

TEST(CausalAttentionTest, RowsOfAdditiveMaskAreAligned) {
  for (const int64_t length : {1, 7, 8, 13, 64}) {
    const at::Tensor mask = AdditiveMask(Windows(length), at::kBFloat16);
    EXPECT_EQ(mask.sizes(), Windows(length).sizes());
    EXPECT_EQ(mask.stride(-1), 1);
    for (int64_t i = 0; i < 3; ++i) EXPECT_EQ(mask.stride(i) % 8, 0) << length;
  }
}

}  // namespace
}  // namespace dslaunch::causal_attention_test
