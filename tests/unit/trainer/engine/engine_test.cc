#include "dslaunch/engine.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>

#include <fstream>

#include "tests/support/temp_dir.h"
#include "tests/unit/trainer/world_of_one.h"
#include "trainer/base/train_error.h"
#include "trainer/config/engine_config.h"

namespace dslaunch::engine_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// A model with one weight of value 1 and, on request, a weight that the output does not depend on.
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

TEST(EngineTest, AveragesMicroBatchesOfStep) {
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

TEST(EngineTest, ClipsToTheLargestNorm) {
  auto model = std::make_shared<Scale>();
  auto engine = Initialize(Sgd(1, 0.1), model, World());
  engine.Backward(engine.Forward(at::full({1}, 8.0)).sum());
  engine.Step();
  EXPECT_DOUBLE_EQ(engine.core().grad_norm(), 8.0) << "the norm before clipping";
  EXPECT_NEAR(model->weight.item<double>(), 1.0 - 0.5 * 0.1, 1e-6);
}

TEST(EngineTest, EvaluationDoesNotAffectNextStep) {
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

TEST(EngineTest, ReturnsLearningRatesOfLastAndNextStep) {
  EngineConfig config = Sgd(1, 0);
  config.scheduler.schedule = StepLr{.step_size = 1, .gamma = 0.5};
  auto engine = Initialize(config, std::make_shared<Scale>(), World());
  EXPECT_EQ(engine.core().lr(), 0.5);
  engine.Backward(engine.Forward(at::full({1}, 1.0)).sum());
  engine.Step();
  EXPECT_EQ(engine.core().step_lr(), 0.5);
  EXPECT_EQ(engine.core().lr(), 0.25);
}

std::string Failure(const std::function<void()>& act) {
  try {
    act();
    return "";
  } catch (const TrainError& error) {
    EXPECT_EQ(error.code(), ExitCode::kBadInput);
    return error.what();
  }
}

TEST(EngineTest, NamesParameterThatTheOutputIgnores) {
  EngineConfig config = Sgd(1, 0);
  config.zero.ignore_unused_parameters = false;
  auto engine = Initialize(config, std::make_shared<Scale>(/*with_unused=*/true), World());
  for (int step = 0; step < 2; ++step) {
    engine.Backward(engine.Forward(at::full({1}, 1.0)).sum());
    EXPECT_THAT(Failure([&] { engine.Step(); }), HasSubstr("the parameter unused got no gradient"));
  }
  EXPECT_EQ(engine.core().micro_steps(), 0);
}

TEST(EngineTest, RejectsCallsOutOfOrder) {
  auto model = std::make_shared<Scale>();
  auto engine = Initialize(Sgd(2, 0), model, World());
  const auto loss = [&] { return engine.Forward(at::ones({1})).sum(); };
  EXPECT_THAT(Failure([&] { engine.Step(); }), HasSubstr("Step was called without Backward"));

  engine.SetEval();
  const at::Tensor evaluated = loss();
  EXPECT_THAT(Failure([&] { engine.Backward(evaluated); }), HasSubstr("call SetTrain first"));
  engine.SetTrain();
  EXPECT_THAT(Failure([&] { engine.Backward(evaluated); }),
              HasSubstr("without a forward pass through the engine"));
  EXPECT_THAT(Failure([&] { engine.Backward(model->forward(at::ones({1})).sum()); }),
              HasSubstr("call engine.Forward"));

  loss();  // an evaluation in between needs no Backward
  engine.Backward(loss());
  EXPECT_THAT(Failure([&] { engine.Backward(loss()); }), HasSubstr("twice without Step"));
  EXPECT_FALSE(engine.Step());
  EXPECT_THAT(Failure([&] { engine.Step(); }), HasSubstr("without Backward"));
  EXPECT_EQ(engine.core().micro_steps(), 1) << "a refused call counts for nothing";
}

TEST(EngineTest, RejectsLossWithoutScalarOrGradient) {
  auto engine = Initialize(Sgd(1, 0), std::make_shared<Scale>(), World());
  const at::Tensor output = engine.Forward(at::ones({3}));
  EXPECT_THAT(Failure([&] { engine.Backward(output); }), HasSubstr("the loss has 3 elements"));
  EXPECT_THAT(Failure([&] { engine.Backward(output.detach().sum()); }),
              HasSubstr("does not depend on any parameter"));
  engine.Backward(output.sum());
  EXPECT_TRUE(engine.Step()) << "as if nothing had happened";
}

TEST(EngineTest, RejectsModelWithoutTrainableParameters) {
  auto model = std::make_shared<Scale>();
  model->weight.set_requires_grad(false);
  EXPECT_THAT(Failure([&] { Initialize(Sgd(1, 0), model, World()); }),
              HasSubstr("no parameter that requires a gradient"));
}

TEST(EngineTest, KeepsAndSavesFrozenParameters) {
  auto model = std::make_shared<Scale>(/*with_unused=*/true);
  model->parameters()[1].set_requires_grad(false);
  auto engine = Initialize(Sgd(1, 0), model, World());
  engine.Backward(engine.Forward(at::ones({1})).sum());
  EXPECT_TRUE(engine.Step());
  std::vector<std::string> names;
  for (const TensorPart& item : engine.core().ModelState()) names.push_back(item.name);
  EXPECT_THAT(names, ElementsAre("weight", "unused"));
  EXPECT_EQ(model->parameters()[1].item<double>(), 1);
}

// A model whose head is the same parameter as its weight.
struct Tied : torch::nn::Module {
  Tied() {
    weight = register_parameter("weight", at::ones({1}));
    head = register_parameter("head", weight);
  }
  at::Tensor forward(const at::Tensor& x) { return head * (weight * x); }
  at::Tensor weight, head;
};

TEST(EngineTest, CountsTiedWeightOnce) {
  auto model = std::make_shared<Tied>();
  auto engine = Initialize(Sgd(1, 0), model, World());
  engine.Backward(engine.Forward(at::ones({1})).sum());
  engine.Step();
  EXPECT_DOUBLE_EQ(engine.core().grad_norm(), 2);
  EXPECT_EQ(model->weight.item<double>(), 1 - 0.5 * 2);
  EXPECT_EQ(engine.core().ModelState().size(), 1u);
  EXPECT_EQ(engine.core().memory().parameters, 4);
}

constexpr char kConfig[] = R"(
  {  // comments are allowed
    "train_batch_size": 2, "gradient_clipping": 0, /* no limit */
    "optimizer": {"type": "SGD", "params": {"lr": 0.25}}
  })";
constexpr char kConfigWithoutOptimizer[] = R"({"train_batch_size": 2, "gradient_clipping": 0})";

TEST(EngineTest, AcceptsConfigurationAsTextOrFile) {
  const TempDir folder;
  std::ofstream(folder / "ds_config.json") << kConfig;
  for (const std::string& config : {std::string(kConfig), folder / "ds_config.json"}) {
    auto engine = Initialize(config, std::make_shared<Scale>(), World());
    EXPECT_EQ(engine.core().micro_batch_size(), 2) << config;
    EXPECT_EQ(engine.lr(), 0.25) << config;
  }
  const std::string missing = folder / "none.json";
  EXPECT_THAT(Failure([&] { Initialize(missing, std::make_shared<Scale>(), World()); }),
              HasSubstr("cannot read the configuration " + missing));
  EXPECT_THAT(Failure([&] { Initialize("", std::make_shared<Scale>(), World()); }),
              HasSubstr("cannot read the configuration"));
  EXPECT_THAT(Failure([&] { Initialize(folder.path(), std::make_shared<Scale>(), World()); }),
              HasSubstr("cannot read the configuration"));
  EXPECT_THAT(
      Failure([&] { Initialize("{\"train_batch\": 2}", std::make_shared<Scale>(), World()); }),
      HasSubstr("train_batch"));
}

TEST(EngineTest, AcceptsOptimizerSectionOfTheProgram) {
  const auto lr = [](const std::string& config, const std::string& optimizer) {
    return Initialize(config, std::make_shared<Scale>(), World(), CrossEntropy, {optimizer}).lr();
  };
  const std::string adam = R"({"type": "Adam", "params": {"lr": 0.125}})";
  EXPECT_EQ(lr(kConfigWithoutOptimizer, adam), 0.125);
  EXPECT_EQ(lr(kConfig, adam), 0.25) << "the configuration's counts";
  EXPECT_THAT(Failure([&] { lr(kConfigWithoutOptimizer, ""); }), HasSubstr("optimizer"));
  for (const char* wrong : {R"({"type": "Adm"})", "{", "[]", R"({"type": "Adam", "lr": 1})"}) {
    EXPECT_THAT(Failure([&] { lr(kConfigWithoutOptimizer, wrong); }),
                HasSubstr("the program's optimizer"));
    EXPECT_THAT(Failure([&] { lr(kConfig, wrong); }), HasSubstr("the program's optimizer"));
  }
  EngineConfig config = Sgd(1, 0);
  config.optimizer.reset();
  EXPECT_THAT(Failure([&] { Initialize(config, std::make_shared<Scale>(), World()); }),
              HasSubstr("has no \"optimizer\" and the program sets none"));
}

struct Exponential : torch::nn::Module {
  Exponential() { weight = register_parameter("weight", at::ones({1})); }
  at::Tensor forward(const at::Tensor& x) { return (x * weight).exp(); }
  at::Tensor weight;
};

TEST(EngineTest, MeasuresActivationsOnRequest) {
  for (const bool measured : {true, false}) {
    EngineConfig config = Sgd(1, 0);
    config.memory_breakdown = measured;
    auto engine = Initialize(config, std::make_shared<Exponential>(), World());
    for (int step = 0; step < 3; ++step) {
      engine.Backward(engine.Forward(at::ones({10'000})).sum());
      engine.Step();
    }
    const int64_t kept = measured ? 40'000 : 0;  // 10,000 exponentials in fp32
    EXPECT_NEAR(static_cast<double>(engine.core().memory().activations), kept, 1000);
  }
}

}  // namespace
}  // namespace dslaunch::engine_test
