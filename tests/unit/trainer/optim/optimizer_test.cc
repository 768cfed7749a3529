#include "trainer/optim/optimizer.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>

namespace dslaunch::optimizer_test {
namespace {

using Type = OptimizerConfig::Type;

// A matrix and a bias of ones. Step() updates them with gradients that all equal `gradient`.
struct Net {
  std::vector<NamedTensor> parameters = {{"fc.weight", at::ones({2, 3}).requires_grad_()},
                                         {"fc.bias", at::ones({3}).requires_grad_()}};

  void Step(Optimizer& optimizer, double gradient) {
    std::vector<at::Tensor> gradients;
    for (const NamedTensor& parameter : parameters) {
      gradients.push_back(at::full_like(parameter.tensor, gradient));
    }
    optimizer.Step(gradients);
  }
  double Weight() const { return parameters[0].tensor.flatten()[0].item<double>(); }
  double Bias() const { return parameters[1].tensor[0].item<double>(); }
};

OptimizerConfig Config(Type type, double lr) {
  OptimizerConfig config;
  config.type = type;
  config.lr = lr;
  return config;
}

std::vector<OptimizerConfig> AllKinds() {
  std::vector<OptimizerConfig> kinds;
  for (const Type type : {Type::kAdam, Type::kAdamW, Type::kSgd, Type::kAdagrad, Type::kRmsprop,
                          Type::kLamb, Type::kLion}) {
    kinds.push_back(Config(type, 0.01));
    kinds.back().weight_decay = 0.1;
  }
  kinds[1].amsgrad = true;
  kinds[2].momentum = 0.9;
  kinds[4].momentum = 0.9;
  kinds[4].centered = true;
  return kinds;
}

// Factors must be fp32, as in amp O3, because fp16 rounds 1e-7 to 1.19e-7 and cannot represent 1e5.
TEST(OptimizerTest, UsesFp32FactorsFor16BitParameters) {
  for (OptimizerConfig config : AllKinds()) {
    config.lr = 1e5;
    config.weight_decay = 1e5;
    const std::vector<NamedTensor> parameters = {{"w", at::ones({3}, at::kHalf)}};
    const auto optimizer = MakeOptimizer(config, {}, parameters);
    EXPECT_NO_THROW(optimizer->Step({at::ones({3}, at::kHalf)})) << static_cast<int>(config.type);
  }
  for (const Type type : {Type::kSgd, Type::kLion}) {
    OptimizerConfig config = Config(type, 1e-7);
    config.momentum = 0;
    config.weight_decay = 0;
    const std::vector<NamedTensor> parameters = {{"w", at::zeros({3}, at::kHalf)}};
    const auto optimizer = MakeOptimizer(config, {}, parameters);
    optimizer->Step({at::full({3}, 60000, at::kHalf)});
    const double step = type == Type::kSgd ? 60000 * 1e-7 : 1e-7;
    EXPECT_NEAR(parameters[0].tensor[0].item<double>(), -step, type == Type::kSgd ? 1e-5 : 0x1p-25);
  }
}

TEST(OptimizerTest, UpdateInPiecesGivesSameBits) {
  for (OptimizerConfig config : AllKinds()) {
    config.groups = {{.names = {"*bias"}, .max_dims = {}, .lr = 0.2, .weight_decay = 0}};
    const auto gradients = [](int step) {
      std::vector<at::Tensor> of_all;
      for (const int64_t size : {6, 3, 5, 2})
        of_all.push_back((at::arange(size, at::kFloat) + step).sin());
      return of_all;
    };
    const auto parameters = [] {
      return std::vector<NamedTensor>{{"a", at::ones({6})},
                                      {"a.bias", at::ones({3})},
                                      {"b", at::ones({5})},
                                      {"b.bias", at::ones({2})}};
    };
    const std::vector<NamedTensor> whole = parameters(), in_pieces = parameters();
    const auto first = MakeOptimizer(config, {}, whole);
    const auto second = MakeOptimizer(config, {}, in_pieces);
    EXPECT_EQ(second->takes_pieces(), config.type != Type::kLamb);
    if (!second->takes_pieces()) continue;
    for (int step = 0; step < 3; ++step) {
      const std::vector<at::Tensor> all = gradients(step);
      first->Step(all);
      second->BeginStep();
      second->StepParts(0, {all[0]});
      second->StepParts(1, {all[1], all[2]});
      second->StepParts(3, {all[3]});
      second->EndStep();
    }
    EXPECT_EQ(second->updates(), 3);
    for (size_t i = 0; i < whole.size(); ++i) {
      EXPECT_TRUE(at::equal(whole[i].tensor, in_pieces[i].tensor))
          << OptimizerTypeName(config.type) << " " << whole[i].name;
    }
    for (size_t i = 0; i < first->States().size(); ++i) {
      EXPECT_TRUE(at::equal(first->States()[i].tensor, second->States()[i].tensor))
          << OptimizerTypeName(config.type);
    }
  }
}

TEST(OptimizerTest, NamesStateLikePyTorch) {
  const std::vector<std::vector<std::string>> names = {
      {"exp_avg", "exp_avg_sq"},
      {"exp_avg", "exp_avg_sq", "max_exp_avg_sq"},
      {"momentum_buffer"},
      {"sum"},
      {"square_avg", "grad_avg", "momentum_buffer"},
      {"exp_avg", "exp_avg_sq"},
      {"exp_avg"}};
  const std::vector<OptimizerConfig> kinds = AllKinds();
  for (size_t i = 0; i < kinds.size(); ++i) {
    Net net;
    std::map<std::string, std::vector<std::string>> got;
    for (const auto& state : MakeOptimizer(kinds[i], {}, net.parameters)->States()) {
      got[net.parameters[state.part].name].push_back(state.name);
      EXPECT_EQ(state.tensor.sizes(), net.parameters[state.part].tensor.sizes());
    }
    EXPECT_EQ(got["fc.weight"], names[i]) << "kind " << i;
    EXPECT_EQ(got["fc.bias"], names[i]) << "kind " << i;
  }
  Net net;
  EXPECT_TRUE(MakeOptimizer(Config(Type::kSgd, 1), {}, net.parameters)->States().empty());
}

TEST(OptimizerTest, RestoredOptimizerContinuesLikeOriginal) {
  const StepLr schedule{.step_size = 2, .gamma = 0.5};
  for (const OptimizerConfig& config : AllKinds()) {
    Net net;
    const auto optimizer = MakeOptimizer(config, schedule, net.parameters);
    for (int i = 0; i < 3; ++i) net.Step(*optimizer, 0.3 + i);

    Net copy;
    const auto restored = MakeOptimizer(config, schedule, copy.parameters);
    {
      const at::NoGradGuard no_grad;
      for (size_t i = 0; i < net.parameters.size(); ++i) {
        copy.parameters[i].tensor.copy_(net.parameters[i].tensor);
      }
    }
    const auto from = optimizer->States(), to = restored->States();
    for (size_t i = 0; i < from.size(); ++i) to[i].tensor.copy_(from[i].tensor);
    restored->SetUpdates(optimizer->updates(), optimizer->updates());
    EXPECT_EQ(restored->lr(), optimizer->lr());

    for (int i = 0; i < 3; ++i) {
      net.Step(*optimizer, 0.7 - i);
      copy.Step(*restored, 0.7 - i);
    }
    EXPECT_EQ(copy.Weight(), net.Weight()) << "type " << static_cast<int>(config.type);
    EXPECT_EQ(copy.Bias(), net.Bias()) << "type " << static_cast<int>(config.type);
  }
}

TEST(OptimizerTest, AppliesSettingsOfGroups) {
  OptimizerConfig config = Config(Type::kSgd, 0.5);
  config.weight_decay = 1;
  ParameterGroupConfig no_decay;
  no_decay.max_dims = 1;
  no_decay.weight_decay = 0;
  config.groups.push_back(no_decay);
  Net net;
  auto optimizer = MakeOptimizer(config, {}, net.parameters);
  net.Step(*optimizer, 0);
  EXPECT_DOUBLE_EQ(net.Weight(), 0.5);
  EXPECT_DOUBLE_EQ(net.Bias(), 1);

  config.groups[0].lr = 2;
  optimizer = MakeOptimizer(config, StepLr{.step_size = 1, .gamma = 0.25}, net.parameters);
  net.Step(*optimizer, 0);
  net.Step(*optimizer, 1);
  EXPECT_DOUBLE_EQ(net.Bias(), 1 - 2 * 0.25) << "the schedule moves the group's own rate";
}

TEST(OptimizerTest, ScheduleFollowsUpdates) {
  Net net;
  const auto optimizer = MakeOptimizer(
      Config(Type::kSgd, 1), WarmupLr{.warmup = {.num_steps = 4, .linear = true}}, net.parameters);
  EXPECT_EQ(optimizer->lr(), 0);
  net.Step(*optimizer, 1);
  EXPECT_EQ(net.Weight(), 1);
  net.Step(*optimizer, 1);
  EXPECT_EQ(optimizer->lr(), 0.25);
  net.Step(*optimizer, 1);
  EXPECT_EQ(net.Weight(), 0.75);
  EXPECT_EQ(optimizer->updates(), 3);
}

TEST(OptimizerTest, OneCycleChangesMomentumOfAdam) {
  // While the second moment is constant, a step without a gradient multiplies the first moment by
  // the momentum of that step.
  Net net;
  OneCycle cycle{.min_lr = 0, .max_lr = 0, .first_step_size = 2, .second_step_size = 2};
  const auto optimizer = MakeOptimizer(Config(Type::kAdamW, 1), cycle, net.parameters);
  net.Step(*optimizer, 1);
  const at::Tensor mean = optimizer->States()[0].tensor;
  EXPECT_NEAR(mean.flatten()[0].item<double>(), 0.2, 1e-6) << "1 - cycle_min_mom";
  net.Step(*optimizer, 0);
  EXPECT_NEAR(mean.flatten()[0].item<double>(), 0.2 * 0.85, 1e-6);
}

TEST(OptimizerTest, UpdatesAdamWithoutBiasCorrection) {
  Net net;
  OptimizerConfig config = Config(Type::kAdamW, 0.001);
  config.bias_correction = false;
  const auto optimizer = MakeOptimizer(config, {}, net.parameters);
  net.Step(*optimizer, 2);
  // The expected change is lr (1 - beta1) g / sqrt((1 - beta2) g^2).
  EXPECT_NEAR(1 - net.Weight(), 0.001 * 0.1 / std::sqrt(0.001), 1e-6);
}

TEST(OptimizerTest, LionKeepsWeightWithoutGradient) {
  Net net;
  const auto optimizer = MakeOptimizer(Config(Type::kLion, 0.5), {}, net.parameters);
  net.Step(*optimizer, 0);
  EXPECT_EQ(net.Weight(), 1);
  net.Step(*optimizer, 1e-6);
  EXPECT_EQ(net.Weight(), 0.5);
}

// The parameter is large enough for vector instructions, with a remainder.
TEST(OptimizerTest, Updates16BitParameterLikeItsFp32Copy) {
  for (const at::ScalarType type : {at::kHalf, at::kBFloat16}) {
    std::vector<OptimizerConfig> kinds = AllKinds();
    kinds.push_back(kinds[2]);
    kinds.back().nesterov = true;
    kinds.push_back(kinds[2]);
    kinds.back().dampening = 0.5;
    for (OptimizerConfig& config : kinds) {
      config.eps = 1e-3;
      const double tolerance = type == at::kHalf ? 0.004 : 0.03;
      at::manual_seed(9);
      const at::Tensor start = (1 + at::rand({77})).to(type);
      const at::Tensor gradient = (0.5 + at::rand({77})).to(type);
      const std::vector<NamedTensor> narrow = {{"w", start.clone()}},
                                     wide = {{"w", start.to(at::kFloat)}};
      const auto a = MakeOptimizer(config, {}, narrow), b = MakeOptimizer(config, {}, wide);
      for (int step = 0; step < 5; ++step) {
        a->Step({gradient.clone()});
        b->Step({gradient.to(at::kFloat)});
      }
      EXPECT_EQ(narrow[0].tensor.scalar_type(), type);
      EXPECT_FALSE(narrow[0].tensor.eq(start).any().item<bool>()) << OptimizerTypeName(config.type);
      EXPECT_LT((narrow[0].tensor - wide[0].tensor).abs().max().item<double>(), tolerance)
          << OptimizerTypeName(config.type) << ", " << type;
    }
  }
}

}  // namespace
}  // namespace dslaunch::optimizer_test
