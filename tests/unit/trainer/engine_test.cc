#include "dslaunch/engine.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>

#include "proto/contract/worker_env.h"
#include "trainer/config/engine_config.h"
#include "trainer/train_error.h"

namespace dslaunch {
namespace {

// A world of one, which needs no environment.
ProcessGroup& World() {
  static ProcessGroup* group = [] {
    WorkerEnv env;
    env.master_addr = "127.0.0.1";
    return new ProcessGroup(env);
  }();
  return *group;
}

// One weight of value 1 and, where asked for, one that the output does not use.
struct Scale : torch::nn::Module {
  explicit Scale(bool with_unused = false) {
    weight = register_parameter("weight", at::ones({1}));
    if (with_unused) register_parameter("unused", at::ones({1}));
  }
  at::Tensor forward(const at::Tensor& x) { return weight * x; }
  at::Tensor weight;
};

EngineConfig Sgd(int64_t accumulation, double clipping) {
  EngineConfig config;
  config.batch = {accumulation, 1, accumulation};
  config.optimizer.emplace().type = OptimizerConfig::Type::kSgd;
  config.optimizer->lr = 0.5;
  config.gradient_clipping = clipping;
  return config;
}

TEST(EngineTest, AStepAveragesItsMicroBatches) {
  auto model = std::make_shared<Scale>();
  auto engine = Initialize(Sgd(2, 0), model, World());
  engine.Backward(engine.Forward(at::full({1}, 2.0)).sum());
  EXPECT_FALSE(engine.Step());
  EXPECT_EQ(model->weight.item<double>(), 1.0) << "no update inside a step";
  engine.Backward(engine.Forward(at::full({1}, 4.0)).sum());
  EXPECT_TRUE(engine.Step());
  EXPECT_DOUBLE_EQ(engine.core().grad_norm(), 3.0);
  EXPECT_DOUBLE_EQ(model->weight.item<double>(), 1.0 - 0.5 * 3.0);
  EXPECT_EQ(engine.core().global_steps(), 1);

  engine.Backward(engine.Forward(at::full({1}, 1.0)).sum());
  engine.Step();
  engine.Backward(engine.Forward(at::full({1}, 1.0)).sum());
  engine.Step();
  EXPECT_DOUBLE_EQ(engine.core().grad_norm(), 1.0) << "gradients start afresh";
}

TEST(EngineTest, ClippingLimitsTheNorm) {
  auto model = std::make_shared<Scale>();
  auto engine = Initialize(Sgd(1, 0.1), model, World());
  engine.Backward(engine.Forward(at::full({1}, 8.0)).sum());
  engine.Step();
  EXPECT_DOUBLE_EQ(engine.core().grad_norm(), 8.0) << "the norm before clipping";
  EXPECT_NEAR(model->weight.item<double>(), 1.0 - 0.5 * 0.1, 1e-6);
}

TEST(EngineTest, EvaluationLeavesTheNextStepAlone) {
  auto model = std::make_shared<Scale>();
  auto engine = Initialize(Sgd(1, 0), model, World());
  for (int step = 0; step < 2; ++step) {
    {
      const at::NoGradGuard no_grad;
      engine.Forward(at::full({1}, 100.0));
    }
    engine.Backward(engine.Forward(at::full({1}, 1.0)).sum());
    EXPECT_TRUE(engine.Step());
    EXPECT_DOUBLE_EQ(engine.core().grad_norm(), 1.0);
  }
}

TEST(EngineTest, LearningRateOfTheLastAndOfTheNextStep) {
  EngineConfig config = Sgd(1, 0);
  config.scheduler.schedule = StepLr{.step_size = 1, .gamma = 0.5};
  auto engine = Initialize(config, std::make_shared<Scale>(), World());
  EXPECT_EQ(engine.core().lr(), 0.5);
  engine.Backward(engine.Forward(at::full({1}, 1.0)).sum());
  engine.Step();
  EXPECT_EQ(engine.core().step_lr(), 0.5);
  EXPECT_EQ(engine.core().lr(), 0.25);
}

TEST(EngineTest, AParameterThatTheOutputIgnoresIsNamed) {
  auto engine = Initialize(Sgd(1, 0), std::make_shared<Scale>(/*with_unused=*/true), World());
  engine.Backward(engine.Forward(at::full({1}, 1.0)).sum());
  try {
    engine.Step();
    FAIL() << "accepted";
  } catch (const TrainError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("the parameter unused got no gradient"));
  }
}

}  // namespace
}  // namespace dslaunch
