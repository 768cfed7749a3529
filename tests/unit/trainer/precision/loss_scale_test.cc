#include "dslaunch/loss_scale.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include <cmath>
#include <limits>

#include "trainer/base/train_error.h"

namespace dslaunch::loss_scale_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr float kInf = std::numeric_limits<float>::infinity();

struct Net : torch::nn::Module {
  Net() {
    register_module("fc1", fc1);
    register_module("fc2", fc2);
  }
  at::Tensor forward(const at::Tensor& x) { return fc2(at::relu(fc1(x))); }
  torch::nn::Linear fc1{4, 4}, fc2{4, 1};
};

TEST(LossScaleTest, TrainsLikeUnscaledLoop) {
  at::manual_seed(2);
  auto plain = std::make_shared<Net>(), scaled = std::make_shared<Net>();
  for (size_t i = 0; i < plain->parameters().size(); ++i) {
    const at::NoGradGuard no_grad;
    scaled->parameters()[i].copy_(plain->parameters()[i]);
  }
  torch::optim::SGD plain_sgd(plain->parameters(), 0.1), scaled_sgd(scaled->parameters(), 0.1);
  LossScale scale;
  EXPECT_EQ(scale.scale(), 65536);
  for (int step = 0; step < 3; ++step) {
    const at::Tensor x = at::randn({8, 4});
    plain_sgd.zero_grad();
    plain->forward(x).square().mean().backward();
    plain_sgd.step();
    scaled_sgd.zero_grad();
    scale.ScaleLoss(scaled->forward(x).square().mean()).backward();
    ASSERT_TRUE(scale.Unscale(scaled->named_parameters()));
    scaled_sgd.step();
    scale.Update();
  }
  for (size_t i = 0; i < plain->parameters().size(); ++i) {
    EXPECT_TRUE(at::allclose(scaled->parameters()[i], plain->parameters()[i], 1e-6, 1e-7));
  }
}

TEST(LossScaleTest, ScalesFp16LossInFp32) {
  const LossScale scale;
  const at::Tensor loss = scale.ScaleLoss(at::full({}, 3, at::kHalf));
  EXPECT_EQ(loss.scalar_type(), at::kFloat);
  EXPECT_EQ(loss.item<double>(), 3 * 65536.0);
}

TEST(LossScaleTest, FollowsRulesOfEngine) {
  LossScale scale({.initial_scale_power = 4, .loss_scale_window = 2});
  torch::OrderedDict<std::string, at::Tensor> parameters;
  for (const char* name : {"a", "b", "c"}) parameters.insert(name, at::ones({2}).requires_grad_());
  const auto set = [&](const char* name, float value) {
    parameters[name].mutable_grad() = at::full({2}, value);
  };
  std::vector<double> scales;
  for (const bool overflow : {true, false, true, true, false, false, false}) {
    set("a", 1);
    set("c", overflow ? kInf : 2);  // b has no gradient
    EXPECT_EQ(scale.Unscale(parameters), !overflow);
    EXPECT_EQ(scale.not_finite(), overflow ? "c" : "");
    scale.Update();
    scales.push_back(scale.scale());
  }
  EXPECT_THAT(scales, ElementsAre(16, 16, 8, 4, 4, 4, 8));

  // With two optimizers, an overflow in either of them counts for the step.
  torch::OrderedDict<std::string, at::Tensor> others;
  others.insert("d", at::ones({1}).requires_grad_());
  others["d"].mutable_grad() = at::full({1}, std::nanf(""));
  set("c", 1);
  EXPECT_FALSE(scale.Unscale(others));
  EXPECT_TRUE(scale.Unscale(parameters));
  EXPECT_EQ(scale.not_finite(), "d");
}

TEST(LossScaleTest, UnscalesTiedWeightOnce) {
  LossScale scale({.loss_scale = 8});
  at::Tensor weight = at::ones({1}).requires_grad_();
  weight.mutable_grad() = at::full({1}, 16.0);
  torch::OrderedDict<std::string, at::Tensor> parameters;
  parameters.insert("embedding", weight);
  parameters.insert("head", weight);
  EXPECT_TRUE(scale.Unscale(parameters));
  EXPECT_EQ(weight.grad().item<double>(), 2);
}

TEST(LossScaleTest, NamesParameterAtMinimumScale) {
  LossScale scale({.initial_scale_power = 0, .hysteresis = 1});
  torch::OrderedDict<std::string, at::Tensor> parameters;
  parameters.insert("fc.weight", at::ones({1}).requires_grad_());
  parameters["fc.weight"].mutable_grad() = at::full({1}, kInf);
  EXPECT_FALSE(scale.Unscale(parameters));
  try {
    scale.Update();
    FAIL() << "went on";
  } catch (const TrainError& error) {
    EXPECT_THAT(error.what(), HasSubstr("fc.weight is not finite; loss scale 1 is the minimum"));
    EXPECT_THAT(error.what(), HasSubstr("bf16"));
  }
}

TEST(LossScaleTest, RejectsOptionsOutOfRange) {
  const std::pair<LossScaleOptions, const char*> cases[] = {
      {{.loss_scale = -1}, "::loss_scale must"},
      {{.loss_scale = kInf}, "::loss_scale must"},
      {{.initial_scale_power = 200}, "initial_scale_power"},
      {{.loss_scale_window = 0}, "loss_scale_window"},
      {{.hysteresis = 0}, "hysteresis"},
      {{.min_loss_scale = 0}, "min_loss_scale"},
  };
  for (const auto& [options, word] : cases) {
    try {
      const LossScale scale(options);
      FAIL() << word;
    } catch (const TrainError& error) {
      EXPECT_THAT(error.what(), HasSubstr(word));
    }
  }
}

}  // namespace
}  // namespace dslaunch::loss_scale_test
