#include "trainer/profile/forward_meter.h"

#include <gtest/gtest.h>
#include <torch/nn.h>

namespace dslaunch::forward_meter_test {
namespace {

namespace nn = torch::nn;

TEST(ForwardMeterTest, CountsOnlyForwardPass) {
  nn::Sequential model(nn::Linear(8, 16), nn::ReLU(), nn::Linear(16, 4));
  double flops = 0;
  {
    const ForwardMeter meter(*model);
    model->forward(at::ones({32, 8})).sum().backward();
    flops = meter.flops();
  }
  EXPECT_EQ(flops, 2.0 * 32 * 8 * 16 + 2.0 * 32 * 16 * 4);
}

TEST(ForwardMeterTest, CountsNestedOperatorOnce) {
  nn::Sequential model(nn::Conv2d(nn::Conv2dOptions(3, 6, 3).padding(1).groups(3)));
  const ForwardMeter meter(*model);
  const at::Tensor heads = at::ones({2, 4, 16, 8});
  at::scaled_dot_product_attention(heads, heads, heads);
  EXPECT_EQ(meter.flops(), 2 * (2.0 * 2 * 4 * 16 * 16 * 8));
  model->forward(at::ones({2, 3, 8, 8}));
  EXPECT_EQ(meter.flops(), 2 * (2.0 * 2 * 4 * 16 * 16 * 8) + 2.0 * 2 * 6 * 8 * 8 * 9);
}

TEST(ForwardMeterTest, AssignsOperatorToModuleOfItsParameter) {
  nn::Sequential model(nn::Linear(8, 16), nn::ReLU(), nn::Linear(16, 4));
  const at::Tensor input = at::ones({32, 8});
  const ForwardMeter meter(*model);
  model->forward(input);
  // A linear layer transposes its weight and then multiplies.
  ASSERT_EQ(meter.operators().size(), 5u);
  for (const size_t index : {0, 1}) EXPECT_EQ(meter.operators()[index].module, "0");
  EXPECT_EQ(meter.operators()[2].module, std::nullopt);
  for (const size_t index : {3, 4}) EXPECT_EQ(meter.operators()[index].module, "2");
  EXPECT_EQ(meter.operators()[4].flops, 2.0 * 32 * 16 * 4);
  EXPECT_GT(meter.operators()[0].seconds, 0);
}

TEST(ForwardMeterTest, CountsNothingAfterDestruction) {
  nn::Linear model(8, 16);
  { const ForwardMeter meter(*model); }
  model->forward(at::ones({32, 8}));
  const ForwardMeter later(*model);
  EXPECT_EQ(later.flops(), 0);
}

}  // namespace
}  // namespace dslaunch::forward_meter_test
