// Tests that interrupted steps train like uninterrupted steps, at every ZeRO stage. Steps are
// interrupted by an inference pass, an exception, a checkpoint, or a parameter without a gradient.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adamw.h>

#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <utility>

#include "dslaunch/engine.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/trainer/ranks.h"
#include "trainer/config/engine_config.h"

namespace dslaunch::interrupted_step_test {
namespace {

using ::testing::HasSubstr;

enum class Precision { kFloat32, kFloat16, kBFloat16, kFloat64, kAutocast };
constexpr Precision kPrecisions[] = {Precision::kFloat32, Precision::kFloat16, Precision::kBFloat16,
                                     Precision::kFloat64, Precision::kAutocast};
constexpr int kStages[] = {0, 1, 2, 3};
constexpr int64_t kRows = 3;

// The place in a backward pass at which an exception is thrown: before the first gradient of a
// parameter, between two gradients, or after the last gradient.
enum class Place { kNowhere, kFirst, kBetween, kLast };

struct Throw : torch::autograd::Function<Throw> {
  static at::Tensor forward(torch::autograd::AutogradContext*, const at::Tensor& x) {
    return x.clone();
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                 const torch::autograd::variable_list&) {
    throw std::runtime_error("no memory left");
  }
};

struct Net : torch::nn::Module {
  Net() {
    first = register_module("first", torch::nn::Linear(5, 7));
    second = register_module("second", torch::nn::Linear(7, 6));
    last = register_module("last", torch::nn::Linear(6, 2));
    spare = register_parameter("spare", at::empty({11}));
    const at::NoGradGuard no_grad;
    for (const auto& item : named_parameters()) {
      item.value().copy_(at::arange(item.value().numel())
                             .add(static_cast<double>(item.key().size()))
                             .sin()
                             .mul(0.5)
                             .view(item.value().sizes()));
    }
  }
  at::Tensor forward(const at::Tensor& x) {
    at::Tensor y = throws == Place::kLast ? Throw::apply(x.detach().requires_grad_()) : x;
    y = first(y).tanh();
    if (throws == Place::kBetween) y = Throw::apply(y);
    if (inside) std::exchange(inside, nullptr)();
    y = last(second(y).tanh());
    if (spare_factor) y = y + spare.sum() * *spare_factor;
    return throws == Place::kFirst ? Throw::apply(y) : y;
  }

  torch::nn::Linear first{nullptr}, second{nullptr}, last{nullptr};
  at::Tensor spare;
  std::optional<double> spare_factor = 1;  // nullopt if `spare` is not used
  Place throws = Place::kNowhere;
  std::function<void()> inside;  // called once, during the next forward pass
};

EngineConfig Config(int stage, Precision precision, int64_t accumulation) {
  EngineConfig config;
  config.batch = {2 * kRows * accumulation, kRows, accumulation};
  config.optimizer.emplace().type = OptimizerConfig::Type::kAdamW;
  config.optimizer->lr = 0.05;
  config.gradient_clipping = 0;
  config.zero.stage = stage;
  config.zero.reduce_bucket_size = 30;
  config.zero.param_persistence_threshold = 4;
  if (precision == Precision::kFloat16 || precision == Precision::kBFloat16) {
    config.precision.model = precision == Precision::kFloat16 ? Dtype::kFloat16 : Dtype::kBFloat16;
    config.precision.master_weights = true;
    config.precision.skip_overflow = true;
  }
  if (precision == Precision::kAutocast) config.precision.autocast = Dtype::kFloat16;
  if (precision == Precision::kFloat16 || precision == Precision::kAutocast) {
    config.precision.loss_scaler.emplace().initial_scale_power = 6;
  }
  return config;
}

// One rank of a program that trains a Net.
class Trainer {
 public:
  Trainer(const EngineConfig& config, Precision precision, const ProcessGroup& group)
      : rank_(group.rank()),
        dtype_(precision == Precision::kFloat64 ? at::kDouble : at::kFloat),
        net_(MakeNet(dtype_)),
        engine_(Initialize(config, net_, group, SquaredError)) {
    engine_.SetTrain();
  }

  Net& net() { return *net_; }
  Engine<Net>& engine() { return engine_; }

  at::Tensor Inputs(int batch) const {
    return (at::arange(kRows * 5, dtype_) * 0.37 + (batch * 2 + rank_)).sin().view({kRows, 5});
  }
  at::Tensor Loss(int batch) {
    const at::Tensor targets = (at::arange(kRows * 2, dtype_) + batch).cos().view({kRows, 2});
    return engine_.Loss(engine_.Forward(Inputs(batch)), targets);
  }
  void Finish(const at::Tensor& loss) {
    losses_.push_back(loss.item<double>());
    engine_.Backward(loss);
    engine_.Step();
  }
  void Train(int batch) { Finish(Loss(batch)); }

  // Runs a micro-batch whose backward pass throws at `place`.
  void TrainThrowing(int batch, Place place) {
    net_->throws = place;
    const at::Tensor loss = Loss(batch);
    net_->throws = Place::kNowhere;
    EXPECT_THROW(engine_.Backward(loss), std::runtime_error);
  }

  at::Tensor Infer(int batch) {
    const at::NoGradGuard no_grad;
    return engine_.Forward(Inputs(batch));
  }

  // Results: the losses of this rank's micro-batches, and all parameters at the end.
  std::vector<double> losses() const { return losses_; }
  std::map<std::string, at::Tensor> Weights() {
    const GatheredParameters gathered(engine_.core(), net_->parameters());
    const at::NoGradGuard no_grad;
    std::map<std::string, at::Tensor> weights;
    for (const auto& item : net_->named_parameters()) {
      weights[item.key()] = item.value().to(at::kDouble).clone();
    }
    return weights;
  }

 private:
  static std::shared_ptr<Net> MakeNet(at::ScalarType dtype) {
    auto net = std::make_shared<Net>();
    net->to(dtype);
    return net;
  }
  static at::Tensor SquaredError(const at::Tensor& output, const at::Tensor& target) {
    return (output.to(target.scalar_type()) - target).square().mean();
  }

  const int rank_;
  const at::ScalarType dtype_;
  const std::shared_ptr<Net> net_;
  Engine<Net> engine_;
  std::vector<double> losses_;
};

using Program = std::function<void(Trainer&)>;

struct Outcome {
  std::vector<std::vector<double>> losses = {{}, {}};  // losses of each rank
  std::map<std::string, at::Tensor> weights;
  double grad_norm = 0;
};

// Runs the programs one after the other on the same two ranks, and returns their outcomes. Expects
// both ranks to have the same parameters at the end.
std::vector<Outcome> RunTwoRanks(const EngineConfig& config, Precision precision,
                                 const std::vector<Program>& programs) {
  std::mutex mutex;
  std::vector<Outcome> outcomes(programs.size());
  for (const auto& error : RunRanks(2, [&](const ProcessGroup& group) {
         for (size_t i = 0; i < programs.size(); ++i) {
           SCOPED_TRACE("program " + std::to_string(i));
           Trainer trainer(config, precision, group);
           programs[i](trainer);
           const std::map<std::string, at::Tensor> weights = trainer.Weights();
           const std::lock_guard lock(mutex);
           Outcome& outcome = outcomes[i];
           outcome.losses[static_cast<size_t>(group.rank())] = trainer.losses();
           outcome.grad_norm = trainer.engine().core().grad_norm();
           if (outcome.weights.empty()) outcome.weights = weights;
           for (const auto& [name, tensor] : weights) {
             EXPECT_TRUE(at::equal(tensor, outcome.weights.at(name)))
                 << "the ranks differ: " << name;
           }
         }
       })) {
    EXPECT_EQ(TextOf(error), "");
  }
  return outcomes;
}

// Expects every program to have the same outcome as the first program, bit for bit.
void ExpectSameOutcomes(const EngineConfig& config, Precision precision,
                        const std::vector<Program>& programs) {
  const std::vector<Outcome> outcomes = RunTwoRanks(config, precision, programs);
  const Outcome& wanted = outcomes[0];
  EXPECT_FALSE(wanted.weights.empty());
  for (size_t i = 1; i < outcomes.size(); ++i) {
    SCOPED_TRACE("program " + std::to_string(i));
    EXPECT_EQ(outcomes[i].losses, wanted.losses);
    EXPECT_EQ(outcomes[i].grad_norm, wanted.grad_norm);
    ASSERT_EQ(outcomes[i].weights.size(), wanted.weights.size());
    for (const auto& [name, tensor] : wanted.weights) {
      EXPECT_TRUE(at::equal(outcomes[i].weights.at(name), tensor)) << name;
    }
  }
}

class InterruptedStepTest : public testing::TestWithParam<std::tuple<int, Precision>> {
 protected:
  int stage() const { return std::get<0>(GetParam()); }
  Precision precision() const { return std::get<1>(GetParam()); }
  EngineConfig MakeConfig(int64_t accumulation) const {
    return Config(stage(), precision(), accumulation);
  }
  void ExpectSame(int64_t accumulation, const std::vector<Program>& programs) const {
    ExpectSameOutcomes(MakeConfig(accumulation), precision(), programs);
  }
};
std::string CellName(const testing::TestParamInfo<std::tuple<int, Precision>>& cell) {
  const char* const names[] = {"Fp32", "Fp16", "Bf16", "Fp64", "Autocast"};
  return "Zero" + std::to_string(std::get<0>(cell.param)) +
         names[static_cast<size_t>(std::get<1>(cell.param))];
}

INSTANTIATE_TEST_SUITE_P(All, InterruptedStepTest,
                         testing::Combine(testing::ValuesIn(kStages),
                                          testing::ValuesIn(kPrecisions)),
                         CellName);

// Returns a program that trains `batches` micro-batches without interruption.
Program Plain(int batches) {
  return [=](Trainer& trainer) {
    for (int i = 0; i < batches; ++i) trainer.Train(i);
  };
}

TEST_P(InterruptedStepTest, IgnoresInferenceInsideTrainingPass) {
  ExpectSame(2, {Plain(6), [](Trainer& trainer) {
                   for (int i = 0; i < 6; ++i) {
                     if (i == 1) trainer.net().inside = [&] { trainer.Infer(30); };
                     const at::Tensor loss = trainer.Loss(i);
                     if (i != 2) trainer.Infer(20 + i);
                     if (i == 3) {
                       trainer.engine().SetEval();
                       trainer.Infer(40);
                       trainer.engine().SetTrain();
                     }
                     if (i == 4) {
                       EXPECT_ANY_THROW(trainer.engine().Forward(at::ones({2, 2})));
                     }
                     trainer.Finish(i == 4 ? trainer.Loss(i) : loss);
                     trainer.Infer(50);
                   }
                 }});
}

TEST_P(InterruptedStepTest, KeepsTrainingPassAfterFailedInference) {
  ExpectSame(1, {Plain(2), [](Trainer& trainer) {
                   for (int i = 0; i < 2; ++i) {
                     const at::Tensor loss = trainer.Loss(i);
                     {
                       const at::NoGradGuard no_grad;
                       EXPECT_ANY_THROW(trainer.engine().Forward(at::ones({2, 2})));
                     }
                     trainer.Infer(7);
                     trainer.Finish(loss);
                   }
                 }});
}

TEST_P(InterruptedStepTest, IgnoresFailedBackwardPass) {
  std::vector<Program> programs = {Plain(3)};
  for (const Place place : {Place::kFirst, Place::kBetween, Place::kLast}) {
    programs.push_back([=](Trainer& trainer) {
      trainer.TrainThrowing(10, place);
      trainer.Train(0);
      trainer.Train(1);
      trainer.TrainThrowing(11, place);
      trainer.engine().ZeroGrad();
      trainer.Infer(12);
      trainer.TrainThrowing(13, place);
      trainer.Train(2);
    });
  }
  ExpectSame(1, programs);
}

TEST_P(InterruptedStepTest, RestartsStepAfterFailedBackward) {
  std::vector<Program> programs = {Plain(4)};
  for (const Place place : {Place::kFirst, Place::kBetween, Place::kLast}) {
    programs.push_back([=](Trainer& trainer) {
      trainer.Train(0);
      trainer.Train(1);
      trainer.engine().Backward(trainer.Loss(10));
      trainer.engine().Step();
      trainer.TrainThrowing(11, place);
      EXPECT_EQ(trainer.engine().core().micro_steps(), 2);
      trainer.Train(2);
      trainer.Train(3);
      EXPECT_EQ(trainer.engine().global_steps(), 2);
    });
  }
  ExpectSame(2, programs);
}

TEST_P(InterruptedStepTest, OmitsMicroBatchOfFailedForward) {
  ExpectSame(2, {Plain(4), [](Trainer& trainer) {
                   for (int i = 0; i < 4; ++i) {
                     trainer.net().inside = [] { throw std::runtime_error("no memory left"); };
                     EXPECT_THROW(trainer.Loss(10 + i), std::runtime_error);
                     trainer.Infer(20);
                     trainer.Train(i);
                   }
                 }});
}

TEST_P(InterruptedStepTest, ZeroGradDropsGradientsSoFar) {
  const Program wanted = [](Trainer& trainer) {
    for (int i = 0; i < 2; ++i) {
      trainer.engine().Backward(trainer.Loss(10) * 0);
      trainer.engine().Step();
      trainer.Train(i);
    }
  };
  ExpectSame(2, {wanted, [](Trainer& trainer) {
                   for (int i = 0; i < 2; ++i) {
                     trainer.engine().Backward(trainer.Loss(10));
                     trainer.engine().Step();
                     const at::Tensor loss = trainer.Loss(i);
                     if (i == 1) {
                       trainer.engine().Backward(loss);
                       trainer.engine().ZeroGrad();
                       trainer.Train(i);
                     } else {
                       trainer.engine().ZeroGrad();
                       trainer.Finish(loss);
                     }
                   }
                 }});
}

TEST_P(InterruptedStepTest, LoadsCheckpointInTheMiddleOfStep) {
  const TempDir folder;
  RunTwoRanks(MakeConfig(2), precision(), {[&](Trainer& trainer) {
                Plain(2)(trainer);
                trainer.engine().SaveCheckpoint(folder.path());
              }});
  for (const bool module_only : {false, true}) {
    const auto load = [&](Trainer& trainer) {
      trainer.engine().LoadCheckpoint(folder.path(), "", {.load_module_only = module_only});
    };
    std::vector<Program> programs = {[=](Trainer& trainer) {
      load(trainer);
      for (int i = 2; i < 4; ++i) trainer.Train(i);
    }};
    for (const bool in_pass : {false, true}) {
      programs.push_back([=](Trainer& trainer) {
        trainer.engine().Backward(trainer.Loss(10));
        trainer.engine().Step();
        if (in_pass) trainer.Loss(11);
        load(trainer);
        for (int i = 2; i < 4; ++i) trainer.Train(i);
      });
    }
    SCOPED_TRACE(module_only ? "weights only" : "all");
    ExpectSame(2, programs);
  }
}

TEST_P(InterruptedStepTest, CountsMissingGradientAsZeros) {
  const auto train = [](std::optional<double> factor) {
    return [=](Trainer& trainer) {
      trainer.net().spare_factor = factor;
      Plain(6)(trainer);
    };
  };
  ExpectSame(2, {train(0), train(std::nullopt)});
}

TEST_P(InterruptedStepTest, AcceptsMissingGradientOnOneRank) {
  const auto train = [](std::optional<double> unused) {
    return [=](Trainer& trainer) {
      const int rank = trainer.engine().core().group().rank();
      for (int i = 0; i < 8; ++i) {
        const bool uses = i % 4 == 0 || i % 3 == rank;
        trainer.net().spare_factor = uses ? 1 : unused;
        trainer.Train(i);
      }
    };
  };
  EngineConfig config = MakeConfig(2);
  // At stage 3, ranks may omit only parameters that are not gathered, so the threshold keeps
  // `spare` whole.
  config.zero.param_persistence_threshold = 12;
  ExpectSameOutcomes(config, precision(), {train(0), train(std::nullopt)});
}

TEST_P(InterruptedStepTest, RejectsMissingGradientOnRequest) {
  EngineConfig config = MakeConfig(1);
  config.zero.ignore_unused_parameters = false;
  // Error of either rank. The rank that ends later may report only the loss of the other rank.
  std::string said;
  for (const auto& error : RunRanks(2, [&](const ProcessGroup& group) {
         Trainer trainer(config, precision(), group);
         trainer.net().spare_factor.reset();
         trainer.Train(0);
       })) {
    said += TextOf(error);
  }
  EXPECT_THAT(said, HasSubstr("the parameter spare got no gradient"));
  EXPECT_THAT(said, HasSubstr("zero_optimization.ignore_unused_parameters"));
}

// At stages 0 and 1, ranks exchange no gradients before the last micro-batch of a step, so only one
// rank may omit an earlier one.
TEST_P(InterruptedStepTest, OneRankMayOmitMicroBatchBeforeTheLast) {
  if (stage() > 1) GTEST_SKIP() << "gradients of every micro-batch travel";
  ExpectSame(2, {Plain(4), [](Trainer& trainer) {
                   const bool throws = trainer.engine().core().group().rank() == 1;
                   if (throws) trainer.TrainThrowing(10, Place::kBetween);
                   Plain(4)(trainer);
                 }});
}

// Compares with LibTorch's optimizer on the batches of both ranks.
TEST(Float64Test, TrainsFp64ModelInFp64) {
  constexpr int kSteps = 25, kParts = 2;
  Net reference;
  reference.to(at::kDouble);
  torch::optim::AdamW optimizer(
      reference.parameters(),
      torch::optim::AdamWOptions(0.05).betas({0.9, 0.999}).eps(1e-8).weight_decay(0.01));
  for (int step = 0; step < kSteps; ++step) {
    optimizer.zero_grad();
    for (int part = 0; part < kParts; ++part) {
      const int batch = step * kParts + part;
      for (int rank = 0; rank < 2; ++rank) {
        const at::Tensor inputs =
            (at::arange(kRows * 5, at::kDouble) * 0.37 + (batch * 2 + rank)).sin().view({kRows, 5});
        const at::Tensor targets =
            (at::arange(kRows * 2, at::kDouble) + batch).cos().view({kRows, 2});
        ((reference.forward(inputs) - targets).square().mean() / (2 * kParts)).backward();
      }
    }
    optimizer.step();
  }
  for (const int stage : kStages) {
    EngineConfig config = Config(stage, Precision::kFloat64, kParts);
    config.optimizer->weight_decay = 0.01;
    const std::vector<Outcome> outcomes =
        RunTwoRanks(config, Precision::kFloat64, {Plain(kSteps * kParts)});
    for (const auto& item : reference.named_parameters()) {
      const at::Tensor difference = outcomes[0].weights.at(item.key()) - item.value().detach();
      EXPECT_LT(difference.abs().max().item<double>(), 1e-12)
          << "ZeRO " << stage << ", " << item.key();
    }
  }
}

}  // namespace
}  // namespace dslaunch::interrupted_step_test
