// Tests the engine in 16 bit, compared with manual loops, and with overflows.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adamw.h>

#include <cmath>
#include <limits>

#include "dslaunch/engine.h"
#include "tests/unit/trainer/world_of_one.h"
#include "trainer/base/train_error.h"
#include "trainer/config/engine_config.h"

namespace dslaunch::precision_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr double kInf = std::numeric_limits<double>::infinity();

EngineConfig Config(OptimizerConfig::Type type, double lr, int64_t accumulation = 1) {
  EngineConfig config;
  config.batch = {accumulation, 1, accumulation};
  config.optimizer.emplace().type = type;
  config.optimizer->lr = lr;
  return config;
}

PrecisionConfig Precision(Dtype model) {
  PrecisionConfig precision;
  precision.model = model;
  if (model == Dtype::kFloat32) return precision;
  precision.master_weights = precision.skip_overflow = true;
  if (model == Dtype::kFloat16) precision.loss_scaler.emplace();
  return precision;
}

at::ScalarType Scalar(Dtype dtype) {
  return dtype == Dtype::kFloat32   ? at::kFloat
         : dtype == Dtype::kFloat16 ? at::kHalf
                                    : at::kBFloat16;
}

struct Mlp : torch::nn::Module {
  Mlp() {
    register_module("fc1", fc1);
    register_module("fc2", fc2);
  }
  at::Tensor forward(const at::Tensor& x) { return fc2(at::tanh(fc1(x))); }
  torch::nn::Linear fc1{12, 16}, fc2{16, 4};
};

std::shared_ptr<Mlp> MakeMlp() {
  at::manual_seed(5);
  return std::make_shared<Mlp>();
}

struct Sample {
  at::Tensor inputs = at::randn({8, 12});
  at::Tensor targets = at::randint(0, 4, {8});
};

struct Trace {
  std::vector<double> losses, norms;
  std::vector<at::Tensor> weights;
};

constexpr int kSteps = 12;

// Trains as the engine should, with torch::optim and without any part of the engine.
Trace TrainByHand(Dtype dtype, int accumulation) {
  const std::shared_ptr<Mlp> model = MakeMlp();
  model->to(Scalar(dtype));
  std::vector<at::Tensor> masters;
  for (const at::Tensor& parameter : model->parameters()) {
    masters.push_back(parameter.detach().clone().to(at::kFloat).requires_grad_());
  }
  torch::optim::AdamW optimizer(
      masters, torch::optim::AdamWOptions(0.01).weight_decay(0.1).betas({0.9, 0.999}).eps(1e-8));
  double scale = dtype == Dtype::kFloat16 ? 65536 : 1;
  Trace trace;
  for (int step = 0; step < kSteps; ++step) {
    std::vector<at::Tensor> gradients;
    for (const at::Tensor& master : masters) gradients.push_back(at::zeros_like(master));
    double loss_sum = 0;
    for (int part = 0; part < accumulation; ++part) {
      const Sample sample;
      const at::Tensor output = model->forward(sample.inputs.to(Scalar(dtype)));
      const at::Tensor loss = at::cross_entropy_loss(output.to(at::kFloat), sample.targets);
      loss_sum += loss.item<double>();
      (loss / accumulation * scale).backward();
      for (size_t i = 0; i < gradients.size(); ++i) {
        at::Tensor& gradient = model->parameters()[i].mutable_grad();
        gradients[i] += gradient.to(at::kFloat);
        gradient.reset();
      }
    }
    trace.losses.push_back(loss_sum / accumulation);
    double squares = 0;
    for (at::Tensor& gradient : gradients) {
      gradient /= scale;
      squares += gradient.to(at::kDouble).square().sum().item<double>();
    }
    trace.norms.push_back(std::sqrt(squares));
    if (!std::isfinite(squares)) throw std::logic_error("the example is not to overflow");
    for (size_t i = 0; i < masters.size(); ++i) {
      masters[i].mutable_grad() = gradients[i] * std::min(1.0, 0.5 / (trace.norms.back() + 1e-6));
    }
    optimizer.step();
    const at::NoGradGuard no_grad;
    for (size_t i = 0; i < masters.size(); ++i) model->parameters()[i].copy_(masters[i]);
  }
  trace.weights = masters;
  return trace;
}

Trace TrainByEngine(Dtype dtype, int accumulation) {
  EngineConfig config = Config(OptimizerConfig::Type::kAdamW, 0.01, accumulation);
  config.optimizer->weight_decay = 0.1;
  config.gradient_clipping = 0.5;
  config.precision = Precision(dtype);
  auto engine = Initialize(config, MakeMlp(), World());
  Trace trace;
  for (int step = 0; step < kSteps; ++step) {
    double loss_sum = 0;
    for (int part = 0; part < accumulation; ++part) {
      const Sample sample;
      const at::Tensor loss = engine.Loss(engine.Forward(sample.inputs), sample.targets);
      loss_sum += loss.item<double>();
      engine.Backward(loss);
      engine.Step();
    }
    trace.losses.push_back(loss_sum / accumulation);
    trace.norms.push_back(engine.core().grad_norm());
  }
  for (const TensorPart& item : engine.core().ModelState()) trace.weights.push_back(item.tensor);
  return trace;
}

TEST(PrecisionTest, TrainsLikeManualLoop) {
  for (const Dtype dtype : {Dtype::kFloat32, Dtype::kBFloat16, Dtype::kFloat16}) {
    for (const int accumulation : {1, 4}) {
      const std::string cell =
          std::string(DtypeName(dtype)) + ", accumulation " + std::to_string(accumulation);
      const Trace wanted = TrainByHand(dtype, accumulation);
      const Trace got = TrainByEngine(dtype, accumulation);
      // The results are equal except for the order of roundings, after which a 16-bit weight may
      // differ by one unit.
      const double tolerance = dtype == Dtype::kFloat32 ? 1e-6 : 1e-4;
      for (int step = 0; step < kSteps; ++step) {
        ASSERT_NEAR(got.losses[step] / wanted.losses[step], 1, tolerance) << cell << ", " << step;
        ASSERT_NEAR(got.norms[step] / wanted.norms[step], 1, tolerance) << cell << ", " << step;
      }
      for (size_t i = 0; i < wanted.weights.size(); ++i) {
        EXPECT_EQ(got.weights[i].scalar_type(), at::kFloat) << cell;
        EXPECT_TRUE(at::allclose(got.weights[i], wanted.weights[i], tolerance, tolerance)) << cell;
      }
    }
  }
}

// A model in which the gradient of the weight equals the input.
struct Scale : torch::nn::Module {
  Scale() { weight = register_parameter("weight", at::ones({2})); }
  at::Tensor forward(const at::Tensor& x) { return weight * x; }
  at::Tensor weight;
};

bool TrainOn(Engine<Scale>& engine, double input) {
  engine.Backward(engine.Forward(at::full({2}, input)).sum());
  return engine.Step();
}

EngineConfig ScaledSgd() {
  EngineConfig config = Config(OptimizerConfig::Type::kSgd, 0.25);
  config.gradient_clipping = 0;
  config.precision = Precision(Dtype::kFloat16);
  config.precision.loss_scaler->initial_scale_power = 4;
  config.precision.loss_scaler->loss_scale_window = 2;
  config.scheduler.schedule = StepLr{.step_size = 1, .gamma = 0.5};
  return config;
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

TEST(PrecisionTest, LossScaleFollowsOverflows) {
  auto engine = Initialize(ScaledSgd(), std::make_shared<Scale>(), World());
  std::vector<double> scales;
  for (const double input : {kInf, 1., kInf, kInf, 1., 1., 1., 1.}) {
    EXPECT_EQ(engine.core().loss_scale(), scales.empty() ? 16 : scales.back());
    EXPECT_TRUE(TrainOn(engine, input));
    EXPECT_EQ(engine.core().step_loss_scale(), scales.empty() ? 16 : scales.back());
    EXPECT_EQ(engine.core().skipped(), input == kInf);
    if (input == 1) {
      EXPECT_NEAR(engine.core().grad_norm(), std::sqrt(2), 1e-6);
    }
    scales.push_back(engine.loss_scale());
  }
  EXPECT_THAT(scales, ElementsAre(16, 16, 8, 4, 4, 4, 8, 8));
  EXPECT_EQ(engine.global_steps(), 8);
  EXPECT_EQ(engine.skipped_steps(), 3);
}

TEST(PrecisionTest, SkippedStepChangesNothing) {
  EngineConfig config = ScaledSgd();
  config.optimizer->momentum = 0.9;
  auto engine = Initialize(config, std::make_shared<Scale>(), World());
  TrainOn(engine, 0.3);
  std::vector<TensorPart> state = engine.core().ModelState();
  for (const TensorPart& item : engine.core().OptimizerState()) state.push_back(item);
  state.push_back(TensorPart::Whole("model", engine.model().weight));
  std::vector<at::Tensor> before;
  for (const TensorPart& item : state) before.push_back(item.tensor.detach().clone());

  for (const double input : {kInf, std::nan(""), 60000.}) {  // 60000 overflows when it is scaled
    const double lr = engine.lr();
    EXPECT_TRUE(TrainOn(engine, input)) << "a step, though without an update";
    EXPECT_TRUE(engine.core().skipped()) << input;
    EXPECT_THAT(engine.core().skip_reason(),
                HasSubstr("the gradient of weight is not finite; loss scale "));
    EXPECT_FALSE(std::isfinite(engine.core().grad_norm()));
    EXPECT_EQ(engine.lr(), lr);
    EXPECT_EQ(engine.core().step_lr(), lr);
    for (size_t i = 0; i < state.size(); ++i) {
      EXPECT_TRUE(at::equal(state[i].tensor, before[i])) << state[i].name;
    }
  }
  EXPECT_EQ(engine.skipped_steps(), 3);
  const double lr = engine.lr();
  TrainOn(engine, 0.3);
  EXPECT_FALSE(engine.core().skipped());
  EXPECT_EQ(engine.core().skip_reason(), "");
  EXPECT_EQ(engine.lr(), lr / 2);
  EXPECT_FALSE(at::equal(engine.model().weight, before.back()));
}

TEST(PrecisionTest, BadMicroBatchSkipsStep) {
  EngineConfig config = ScaledSgd();
  config.batch = {3, 1, 3};
  auto engine = Initialize(config, std::make_shared<Scale>(), World());
  EXPECT_FALSE(TrainOn(engine, 1));
  EXPECT_FALSE(TrainOn(engine, kInf));
  EXPECT_TRUE(TrainOn(engine, 1));
  EXPECT_TRUE(engine.core().skipped());
  for (int part = 0; part < 3; ++part) TrainOn(engine, 1);
  EXPECT_FALSE(engine.core().skipped()) << "nothing of the bad step is left";
  EXPECT_NEAR(engine.core().grad_norm(), std::sqrt(2), 1e-3);
}

TEST(PrecisionTest, NamesParameterAtMinimumScale) {
  EngineConfig config = ScaledSgd();
  config.precision.loss_scaler->hysteresis = 1;
  config.precision.loss_scaler->initial_scale_power = 0;
  auto engine = Initialize(config, std::make_shared<Scale>(), World());
  TrainOn(engine, 1);
  EXPECT_EQ(Failure([&] { TrainOn(engine, -kInf); }),
            "step 2: the loss of rank 0 is -inf in micro-batch 1, so the gradient of weight is not "
            "finite; loss scale 1 is the minimum; try bf16, or a lower learning rate");
}

TEST(PrecisionTest, KeepsStaticScale) {
  EngineConfig config = ScaledSgd();
  config.precision.loss_scaler->dynamic = false;
  config.precision.loss_scaler->static_scale = 128;
  auto engine = Initialize(config, std::make_shared<Scale>(), World());
  for (const double input : {1., kInf, kInf, kInf, 1.}) {
    TrainOn(engine, input);
    EXPECT_EQ(engine.loss_scale(), 128);
  }
  EXPECT_EQ(engine.skipped_steps(), 3);
}

TEST(PrecisionTest, ScaleKeepsSmallGradients) {
  EngineConfig config = Config(OptimizerConfig::Type::kSgd, 1);
  config.precision = Precision(Dtype::kFloat16);
  const double tiny = std::ldexp(1.0, -20);
  const auto trained = [&](bool scaled) {
    if (!scaled) config.precision.loss_scaler.reset();
    auto engine = Initialize(config, std::make_shared<Scale>(), World());
    // The input is a normal fp16 number, but its gradient underflows.
    engine.Backward(engine.Forward(at::full({2}, 1.0)).to(at::kFloat).sum() * (tiny / 64));
    engine.Step();
    return engine.core().grad_norm();
  };
  EXPECT_NEAR(trained(true), std::sqrt(2) * tiny / 64, 1e-12);
  EXPECT_EQ(trained(false), 0);
}

TEST(PrecisionTest, Bf16SkipsOrAppliesOverflowAsConfigured) {
  EngineConfig config = Config(OptimizerConfig::Type::kSgd, 0.25);
  config.precision = Precision(Dtype::kBFloat16);
  auto careful = Initialize(config, std::make_shared<Scale>(), World());
  TrainOn(careful, kInf);
  EXPECT_TRUE(careful.core().skipped());
  EXPECT_EQ(careful.core().skip_reason(),
            "the gradient of weight is not finite; the update is skipped");
  EXPECT_EQ(careful.loss_scale(), 1);
  EXPECT_TRUE(at::equal(careful.model().weight.to(at::kFloat), at::ones({2})));

  config.precision.skip_overflow = false;
  auto careless = Initialize(config, std::make_shared<Scale>(), World());
  TrainOn(careless, kInf);
  EXPECT_FALSE(careless.core().skipped());
  EXPECT_FALSE(at::isfinite(careless.model().weight).any().item<bool>());
}

TEST(PrecisionTest, OverflowInFp32EndsRun) {
  const EngineConfig config = Config(OptimizerConfig::Type::kSgd, 0.25, 2);
  auto engine = Initialize(config, std::make_shared<Scale>(), World());
  for (int part = 0; part < 3; ++part) TrainOn(engine, 1);
  EXPECT_EQ(Failure([&] { TrainOn(engine, std::nan("")); }),
            "step 2: the loss of rank 0 is nan in micro-batch 2, so the gradient of weight is not "
            "finite; try a lower learning rate");

  auto other = Initialize(config, std::make_shared<Scale>(), World());
  TrainOn(other, 1);
  const at::Tensor output = other.Forward(at::ones({2}));
  other.Backward((output - output.detach()).sqrt().sum());  // the slope is infinite at 0
  EXPECT_EQ(Failure([&] { other.Step(); }),
            "step 1: the gradient of weight is not finite; try a lower learning rate");
}

TEST(PrecisionTest, AcceptsLargeFiniteGradients) {
  EngineConfig config = Config(OptimizerConfig::Type::kSgd, 1);
  config.gradient_clipping = 1;
  auto engine = Initialize(config, std::make_shared<Scale>(), World());
  TrainOn(engine, 1e30);  // the square of 1e30 exceeds the range of fp32
  EXPECT_NEAR(engine.core().grad_norm() / 1e30, std::sqrt(2), 1e-6);
  EXPECT_NEAR(engine.model().weight[0].item<double>(), 1 - std::sqrt(0.5), 1e-6);
}

struct Normed : torch::nn::Module {
  Normed() {
    register_module("fc", fc);
    register_module("norm", norm);
  }
  at::Tensor forward(const at::Tensor& x) {
    seen = x.scalar_type();
    return norm(fc(x));
  }
  torch::nn::Linear fc{6, 4};
  torch::nn::BatchNorm1d norm{4};
  at::ScalarType seen = at::kDouble;
};

// The levels are Apex's presets as configurations.
TEST(PrecisionTest, TrainsAtAllApexLevels) {
  struct Level {
    const char* name;
    Dtype model;
    bool batch_norm_float32, master_weights;
    std::optional<Dtype> autocast;
    bool scaler;
    at::ScalarType linear, norm, saved, state;
  };
  constexpr auto k16 = at::kHalf, k32 = at::kFloat;
  const Level levels[] = {
      {"O0", Dtype::kFloat32, false, false, {}, false, k32, k32, k32, k32},
      {"O1", Dtype::kFloat32, false, false, Dtype::kFloat16, true, k32, k32, k32, k32},
      {"O2", Dtype::kFloat16, true, true, {}, true, k16, k32, k32, k32},
      {"O3", Dtype::kFloat16, false, false, {}, false, k16, k16, k16, k16},
  };
  for (const Level& level : levels) {
    EngineConfig config = Config(OptimizerConfig::Type::kAdamW, 0.05);
    config.precision.model = level.model;
    config.precision.batch_norm_float32 = level.batch_norm_float32;
    config.precision.master_weights = level.master_weights;
    config.precision.autocast = level.autocast;
    if (level.scaler) config.precision.loss_scaler.emplace().initial_scale_power = 8;
    config.precision.skip_overflow = level.scaler;
    if (level.saved == k16) {
      config.precision.grad_accumulation = Dtype::kFloat16;
      config.optimizer->eps = 1e-4;  // 1e-8 would be zero in fp16
    }
    at::manual_seed(3);
    auto engine = Initialize(config, std::make_shared<Normed>(), World());
    const Normed& model = engine.model();
    EXPECT_EQ(model.fc->weight.scalar_type(), level.linear) << level.name;
    EXPECT_EQ(model.norm->weight.scalar_type(), level.norm) << level.name;
    EXPECT_EQ(model.norm->running_mean.scalar_type(), level.norm) << level.name;
    EXPECT_EQ(model.norm->num_batches_tracked.scalar_type(), at::kLong) << level.name;
    for (const TensorPart& item : engine.core().ModelState()) {
      if (item.name != "fc.weight") continue;
      EXPECT_EQ(item.tensor.scalar_type(), level.saved) << level.name;
    }
    for (const TensorPart& item : engine.core().OptimizerState()) {
      EXPECT_EQ(item.tensor.scalar_type(), level.state) << level.name << ", " << item.name;
    }

    const at::Tensor inputs = at::randn({16, 6}), targets = inputs.slice(1, 0, 4).argmax(1);
    double first = 0, last = 0;
    for (int step = 0; step < 40; ++step) {
      const at::Tensor loss = engine.Loss(engine.Forward(inputs), targets);
      (step == 0 ? first : last) = loss.item<double>();
      engine.Backward(loss);
      engine.Step();
    }
    EXPECT_EQ(model.seen, level.linear) << level.name << ": the input's dtype";
    EXPECT_LT(last, first / 2) << level.name;
    EXPECT_EQ(engine.skipped_steps(), 0) << level.name;
    EXPECT_EQ(model.norm->num_batches_tracked.item<int64_t>(), 40) << level.name;
  }
}

TEST(PrecisionTest, TrainsEachOptimizerWithAndWithoutMasters) {
  using Type = OptimizerConfig::Type;
  for (const Type type : {Type::kAdam, Type::kAdamW, Type::kSgd, Type::kAdagrad, Type::kRmsprop,
                          Type::kLamb, Type::kLion}) {
    for (const bool masters : {false, true}) {
      EngineConfig config = Config(type, 0.05);
      config.optimizer->eps = 1e-4;
      config.optimizer->momentum = 0.5;
      config.precision = Precision(Dtype::kBFloat16);
      config.precision.master_weights = masters;
      auto engine = Initialize(config, MakeMlp(), World());
      at::manual_seed(1);
      const at::Tensor inputs = at::randn({16, 12}), targets = inputs.slice(1, 0, 4).argmax(1);
      double first = 0, last = 0;
      for (int step = 0; step < 20; ++step) {
        const at::Tensor loss = engine.Loss(engine.Forward(inputs), targets);
        (step == 0 ? first : last) = loss.item<double>();
        engine.Backward(loss);
        engine.Step();
      }
      EXPECT_LT(last, first * 0.95) << "type " << static_cast<int>(type) << ", masters " << masters;
    }
  }
}

TEST(PrecisionTest, AutocastComputesIn16Bit) {
  EngineConfig config = Config(OptimizerConfig::Type::kSgd, 0.5);
  config.precision.autocast = Dtype::kBFloat16;
  at::ScalarType loss_input = at::kDouble;
  bool loss_in_autocast = false;
  auto engine = Initialize(config, MakeMlp(), World(), [&](const auto& output, const auto& target) {
    loss_input = output.scalar_type();
    loss_in_autocast = at::mm(at::ones({1, 1}), at::ones({1, 1})).scalar_type() == at::kBFloat16;
    return CrossEntropy(output, target);
  });
  const Sample sample;
  const at::Tensor output = engine.Forward(sample.inputs);
  EXPECT_EQ(output.scalar_type(), at::kBFloat16);
  const at::Tensor loss = engine.Loss(output, sample.targets);
  EXPECT_EQ(loss_input, at::kBFloat16);
  EXPECT_TRUE(loss_in_autocast);
  EXPECT_EQ(loss.scalar_type(), at::kFloat);
  EXPECT_EQ(at::mm(at::ones({1, 1}), at::ones({1, 1})).scalar_type(), at::kFloat) << "outside";
  engine.Backward(loss);
  engine.Step();
  for (const at::Tensor& parameter : engine.model().parameters()) {
    EXPECT_EQ(parameter.scalar_type(), at::kFloat);
  }
  {
    const at::NoGradGuard no_grad;
    const at::Tensor later = engine.Forward(sample.inputs);
    EXPECT_EQ(later.scalar_type(), at::kBFloat16) << "evaluation too";
    EXPECT_FALSE(at::equal(later, output)) << "the weights in 16 bit are not those of before";
  }
}

TEST(PrecisionTest, EndsAutocastWhenForwardThrows) {
  EngineConfig config = Config(OptimizerConfig::Type::kSgd, 0.5);
  config.precision.autocast = Dtype::kBFloat16;
  auto engine = Initialize(config, MakeMlp(), World());
  EXPECT_THROW(engine.Forward(at::ones({1, 3})), c10::Error);
  EXPECT_EQ(at::mm(at::ones({1, 1}), at::ones({1, 1})).scalar_type(), at::kFloat);
}

TEST(PrecisionTest, AutocastScopesNest) {
  const auto product = [] { return at::mm(at::ones({1, 1}), at::ones({1, 1})).scalar_type(); };
  {
    const AutocastScope outer(at::kHalf);
    {
      const AutocastScope inner(at::kBFloat16);
      EXPECT_EQ(product(), at::kBFloat16);
      const AutocastScope nothing(std::nullopt);
      EXPECT_EQ(product(), at::kBFloat16);
    }
    EXPECT_EQ(product(), at::kHalf);
  }
  EXPECT_EQ(product(), at::kFloat);
}

TEST(PrecisionTest, ModelFollowsMasterWeights) {
  EngineConfig config = Config(OptimizerConfig::Type::kSgd, std::ldexp(1.0, -10));
  config.precision = Precision(Dtype::kBFloat16);
  auto engine = Initialize(config, std::make_shared<Scale>(), World());
  const at::Tensor master = engine.core().ModelState()[0].tensor;
  for (int step = 0; step < 3; ++step) TrainOn(engine, 1);
  EXPECT_LT(master[0].item<double>(), 1) << "three updates that bf16 alone would lose";
  const double kept = master[0].item<double>();
  EXPECT_TRUE(at::equal(engine.model().weight, master.to(at::kBFloat16)));

  master.fill_(3);
  engine.core().WeightsChanged();
  EXPECT_TRUE(at::equal(engine.model().weight, at::full({2}, 3, at::kBFloat16)));
  EXPECT_LT(kept, 1);
}

TEST(PrecisionTest, ResumedScalerContinuesLikeOriginal) {
  auto original = Initialize(ScaledSgd(), std::make_shared<Scale>(), World());
  for (const double input : {1., kInf, kInf, 1., kInf, 1.}) TrainOn(original, input);
  auto resumed = Initialize(ScaledSgd(), std::make_shared<Scale>(), World());
  resumed.core().Resume(original.core().progress());
  EXPECT_EQ(resumed.global_steps(), 6);
  EXPECT_EQ(resumed.skipped_steps(), 3);
  EXPECT_EQ(resumed.lr(), original.lr());
  for (const double input : {1., 1., 1., kInf, kInf, 1., 1., 1., 1.}) {
    EXPECT_EQ(resumed.loss_scale(), original.loss_scale());
    TrainOn(original, input);
    TrainOn(resumed, input);
  }
  EXPECT_EQ(resumed.loss_scale(), original.loss_scale());
  EXPECT_EQ(resumed.skipped_steps(), original.skipped_steps());

  // After progress of a run without a scaler is loaded, the configured scale stays in effect. A
  // static scale stays in effect in any case.
  auto fresh = Initialize(ScaledSgd(), std::make_shared<Scale>(), World());
  fresh.core().Resume({.steps = 4, .updates = 4});
  EXPECT_EQ(fresh.loss_scale(), 16);
  EngineConfig config = ScaledSgd();
  config.precision.loss_scaler->dynamic = false;
  config.precision.loss_scaler->static_scale = 128;
  auto fixed = Initialize(config, std::make_shared<Scale>(), World());
  fixed.core().Resume(original.core().progress());
  EXPECT_EQ(fixed.loss_scale(), 128);
}

TEST(PrecisionTest, ReportsMemoryByCategory) {
  EngineConfig config = Config(OptimizerConfig::Type::kAdamW, 0.1);
  config.precision = Precision(Dtype::kBFloat16);
  auto engine = Initialize(config, std::make_shared<Normed>(), World());
  const MemoryUse use = engine.core().memory();
  const int64_t weights = 6 * 4 + 4 + 4 + 4;
  EXPECT_EQ(use.parameters, 2 * weights);
  EXPECT_EQ(use.optimizer, 3 * 4 * weights) << "two moments and the masters";
  EXPECT_EQ(use.buffers, 2 * (4 + 4) + 8);
  EXPECT_GE(use.gradients, 2 * weights);
}

}  // namespace
}  // namespace dslaunch::precision_test
