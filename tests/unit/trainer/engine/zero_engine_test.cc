// Tests that engines at every ZeRO stage train like an engine at stage 0.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/linear.h>
#include <torch/serialize.h>

#include <mutex>

#include "dslaunch/engine.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/trainer/expect_refused.h"
#include "tests/unit/trainer/ranks.h"
#include "trainer/comm/explain.h"
#include "trainer/config/engine_config.h"

namespace dslaunch::zero_engine_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// A model with sizes that no number of ranks divides, a weight that two modules use, a frozen
// weight, a weight that may be unused, and a batch norm.
struct Net : torch::nn::Module {
  explicit Net(bool uses_all = true) : uses_all_(uses_all) {
    first = register_module("first", torch::nn::Linear(5, 7));
    norm = register_module("norm", torch::nn::BatchNorm1d(7));
    frozen = register_module("frozen", torch::nn::Linear(7, 7));
    for (at::Tensor& parameter : frozen->parameters()) parameter.set_requires_grad(false);
    tied = register_parameter("tied", first->weight);
    last = register_module("last", torch::nn::Linear(7, 3));
    spare = register_parameter("spare", at::ones({11}));
  }
  at::Tensor forward(const at::Tensor& x) {
    at::Tensor y = frozen(norm(first(x)).relu()) + at::linear(x, tied);
    if (uses_all_) y = y + spare.sum();
    return last(y);
  }
  torch::nn::Linear first{nullptr}, frozen{nullptr}, last{nullptr};
  torch::nn::BatchNorm1d norm{nullptr};
  at::Tensor tied, spare;
  bool uses_all_;
};

constexpr uint64_t kSeed = 5;

// Makes a model. One at a time, because ranks are threads and share the default generator.
std::shared_ptr<Net> MakeNet(bool uses_all = true) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  at::manual_seed(kSeed);
  return std::make_shared<Net>(uses_all);
}

EngineConfig Config(int stage, int world_size) {
  EngineConfig config;
  config.batch = {8 * 2, 8 / world_size, 2};
  // Adam is not used, because it would enlarge the gradient of a bias before a batch norm, which is
  // only rounding error.
  config.optimizer.emplace().type = OptimizerConfig::Type::kSgd;
  config.optimizer->lr = 0.1;
  config.optimizer->momentum = 0.9;
  config.optimizer->groups = {{.names = {"*bias"}, .max_dims = {}, .lr = 0.02, .weight_decay = 0}};
  config.zero.stage = stage;
  config.zero.reduce_bucket_size = 30;
  config.zero.param_persistence_threshold = 4;
  return config;
}

void Train(Engine<Net>& engine, const ProcessGroup& group, int steps) {
  const int64_t share = 8 / group.world_size();
  for (int step = 0; step < steps * 2; ++step) {
    const at::Tensor all = (at::arange(40, at::kFloat) * 0.37 + step).sin().view({8, 5});
    const at::Tensor targets = at::arange(8).remainder(3);
    const int64_t begin = group.rank() * share;
    engine.Backward(engine.Loss(engine.Forward(all.slice(0, begin, begin + share)),
                                targets.slice(0, begin, begin + share)));
    engine.Step();
  }
}

// Returns copies of the model's whole parameters in fp64, by name.
std::map<std::string, at::Tensor> Weights(Engine<Net>& engine) {
  const GatheredParameters gathered(engine.core(), engine.model().parameters());
  const at::NoGradGuard no_grad;
  std::map<std::string, at::Tensor> weights;
  for (const auto& item : engine.model().named_parameters()) {
    weights[item.key()] = item.value().to(at::kDouble).clone();
  }
  return weights;
}

struct Outcome {
  std::map<std::string, at::Tensor> weights;
  double grad_norm = 0;
};

// Trains three steps on `world_size` ranks and returns the outcome on rank 0. `uses_all`: whether
// the model uses all of its weights.
Outcome TrainedBy(int world_size, const EngineConfig& config, bool uses_all = true) {
  std::mutex mutex;
  Outcome outcome;
  for (const auto& error : RunRanks(world_size, [&](const ProcessGroup& group) {
         auto engine = Initialize(config, MakeNet(uses_all), group);
         Train(engine, group, 3);
         auto weights = Weights(engine);
         const std::lock_guard end(mutex);
         if (group.rank() == 0) {
           outcome = {std::move(weights), engine.core().grad_norm()};
         }
       })) {
    EXPECT_EQ(TextOf(error), "");
  }
  return outcome;
}

void ExpectSame(const Outcome& got, const Outcome& wanted, double tolerance,
                const std::string& what) {
  EXPECT_NEAR(got.grad_norm, wanted.grad_norm, tolerance * wanted.grad_norm) << what;
  ASSERT_EQ(got.weights.size(), wanted.weights.size()) << what;
  for (const auto& [name, tensor] : wanted.weights) {
    EXPECT_LT((got.weights.at(name) - tensor).abs().max().item<double>(), tolerance)
        << what << ", " << name;
  }
}

TEST(ZeroEngineTest, EveryStageTrainsTheSameModel) {
  for (const int world_size : {1, 2, 4}) {
    const Outcome wanted = TrainedBy(world_size, Config(0, world_size));
    for (const int stage : {1, 2, 3}) {
      const Outcome got = TrainedBy(world_size, Config(stage, world_size));
      ExpectSame(got, wanted, 1e-5,
                 std::to_string(world_size) + " ranks, stage " + std::to_string(stage));
    }
  }
}

TEST(ZeroEngineTest, KeepsFp32BatchNormsAmong16BitLayers) {
  EngineConfig config = Config(0, 2);
  config.precision.model = Dtype::kBFloat16;
  config.precision.master_weights = true;
  config.precision.batch_norm_float32 = false;
  const Outcome wanted = TrainedBy(2, config);
  for (config.zero.stage = 1; config.zero.stage <= 3; ++config.zero.stage) {
    ExpectSame(TrainedBy(2, config), wanted, 2e-2, "stage " + std::to_string(config.zero.stage));
  }
}

// Gradients that accumulate in 16 bits are converted to fp32 in pieces. The update must give the
// same bits as without pieces.
TEST(ZeroEngineTest, UpdatesInPiecesToTheSameBits) {
  for (const int stage : {0, 1, 2, 3}) {
    EngineConfig config = Config(stage, 2);
    config.optimizer->type = OptimizerConfig::Type::kAdamW;
    config.precision.model = Dtype::kFloat16;
    config.precision.master_weights = true;
    config.precision.grad_accumulation = Dtype::kFloat16;
    config.precision.loss_scaler.emplace().initial_scale_power = 4;
    config.gradient_clipping = 0.1;
    const Outcome wanted = TrainedBy(2, config);
    config.zero.sub_group_size = 20;
    const Outcome got = TrainedBy(2, config);
    EXPECT_EQ(got.grad_norm, wanted.grad_norm);
    for (const auto& [name, tensor] : wanted.weights) {
      EXPECT_TRUE(at::equal(got.weights.at(name), tensor)) << "stage " << stage << ", " << name;
    }
  }
}

TEST(ZeroEngineTest, SkipsOrRejectsParameterWithoutGradient) {
  for (const int stage : {0, 1, 2, 3}) {
    EngineConfig config = Config(stage, 2);
    const Outcome outcome = TrainedBy(2, config, /*uses_all=*/false);
    EXPECT_TRUE(at::equal(outcome.weights.at("spare"), at::ones({11}, at::kDouble)))
        << "no gradient and no weight decay";
    config.zero.ignore_unused_parameters = false;
    // Error of either rank. The rank that ends later may report only the loss of the other rank.
    std::string said;
    for (const auto& error : RunRanks(2, [&](const ProcessGroup& group) {
           auto engine = Initialize(config, MakeNet(false), group);
           Train(engine, group, 1);
         })) {
      said += TextOf(error);
    }
    EXPECT_THAT(said, HasSubstr("the parameter spare got no gradient"));
  }
}

TEST(ZeroEngineTest, NamesNonFiniteGradientOnEveryRank) {
  for (const int stage : {1, 2, 3}) {
    for (const auto& error : RunRanks(2, [&](const ProcessGroup& group) {
           auto engine = Initialize(Config(stage, 2), MakeNet(), group);
           for (int part = 0; part < 2; ++part) {
             const double factor = part == 1 && group.rank() == 1 ? std::nan("") : 1;
             engine.Backward(engine.Forward(at::ones({4, 5})).sum() * factor);
             engine.Step();
           }
         })) {
      EXPECT_THAT(TextOf(error), HasSubstr("step 1: the loss of rank 1 is nan in micro-batch 2, so "
                                           "the gradient of tied is not finite"));
    }
  }
}

TEST(ZeroEngineTest, SharesGatheredParametersOfModifierRank) {
  for (const int stage : {0, 1, 2, 3}) {
    EngineConfig config = Config(stage, 2);
    config.precision.model = Dtype::kBFloat16;
    config.precision.master_weights = true;
    for (const auto& error : RunRanks(2, [&](const ProcessGroup& group) {
           auto model = MakeNet();
           auto engine = Initialize(config, model, group);
           {
             const GatheredParameters gathered(engine.core(), {model->last->weight}, 1);
             const at::NoGradGuard no_grad;
             if (group.rank() == 1) model->last->weight.fill_(0.5);
           }
           EXPECT_TRUE(
               at::equal(Weights(engine).at("last.weight"), at::full({3, 7}, 0.5, at::kDouble)));
           Train(engine, group, 1);
           EXPECT_LT((Weights(engine).at("last.weight") - 0.5).abs().max().item<double>(), 0.05)
               << "the optimizer's own weights followed";
         })) {
      EXPECT_EQ(TextOf(error), "") << "stage " << stage;
    }
  }
}

TEST(ZeroEngineTest, RejectsReadsOutsideOfPassesAtStage3) {
  for (const auto& error : RunRanks(2, [&](const ProcessGroup& group) {
         auto model = MakeNet();
         auto engine = Initialize(Config(3, 2), model, group);
         group.Barrier();  // the other rank still connects in Initialize
         model->first->weight.sum();
       })) {
    EXPECT_THAT(TextOf(error), HasSubstr("GatheredParameters"));
    EXPECT_THAT(TextOf(error), HasSubstr("first"));
  }
}

std::map<std::string, at::Tensor> LoadedBy(const std::string& file) {
  const std::shared_ptr<Net> model = MakeNet();
  torch::load(model, file);
  std::map<std::string, at::Tensor> weights;
  for (const auto& item : model->named_parameters()) {
    weights[item.key()] = item.value().detach().to(at::kDouble);
  }
  return weights;
}

TEST(ZeroEngineTest, TorchSaveWritesWholeModelOrNothing) {
  const TempDir folder;
  for (const int stage : {0, 1, 2, 3}) {
    for (const auto& error : RunRanks(2, [&](const ProcessGroup& group) {
           const std::string file = folder / ("model" + std::to_string(group.rank()));
           auto model = MakeNet();
           auto engine = Initialize(Config(stage, 2), model, group);
           Train(engine, group, 1);
           const auto wanted = Weights(engine);
           const auto expect_saved = [&] {
             torch::save(model, file);
             for (const auto& [name, tensor] : LoadedBy(file)) {
               EXPECT_TRUE(at::equal(tensor, wanted.at(name))) << name;
             }
           };
           if (stage < 3) {
             expect_saved();
             return;
           }
           const auto refused =
               AllOf(HasSubstr("torch::save"), HasSubstr("ZeRO stage 3"),
                     HasSubstr("engine.SaveCheckpoint"), HasSubstr("dslaunch::GatheredParameters"));
           // LibTorch throws its own exception, which Main and the trainer report as wrong input.
           const auto error_of = [](const std::function<void()>& save) -> std::string {
             try {
               save();
               return "saved";
             } catch (const c10::Error& error) {
               EXPECT_TRUE(IsNotGathered(error.what_without_backtrace()));
               return error.what_without_backtrace();
             }
           };
           EXPECT_THAT(error_of([&] { torch::save(model, file); }), refused);
           EXPECT_THAT(error_of([&] { torch::save(model->last->weight, file); }),
                       AllOf(refused, HasSubstr("parameters of last")));
           {
             const GatheredParameters gathered(engine.core(), engine.model().parameters());
             expect_saved();
           }
           EXPECT_THAT(error_of([&] { torch::save(model, file); }), refused);
           Train(engine, group, 1);
         })) {
      EXPECT_EQ(TextOf(error), "") << "stage " << stage;
    }
  }
}

TEST(ZeroEngineTest, DeferredModelHasTheSameValues) {
  for (const int stage : {0, 2, 3}) {
    for (const Dtype dtype : {Dtype::kFloat32, Dtype::kBFloat16}) {
      EngineConfig config = Config(stage, 2);
      config.precision.model = dtype;
      config.precision.master_weights = dtype != Dtype::kFloat32;
      config.batch = {8 * 2, 8, 2};
      const std::shared_ptr<Net> eager = MakeNet();
      // One rank is used, because threads would share the generator while the recording is
      // replayed.
      for (const auto& error : RunRanks(1, [&](const ProcessGroup& group) {
             std::shared_ptr<Net> model;
             InitRecording recording = DeferInit(kSeed, [&] { model = std::make_shared<Net>(); });
             auto engine = Initialize(config, model, group, CrossEntropy, &recording);
             const auto weights = Weights(engine);
             for (const auto& item : eager->named_parameters()) {
               const at::Tensor wanted =
                   item.value().detach().to(dtype == Dtype::kFloat32 ? at::kFloat : at::kBFloat16);
               EXPECT_TRUE(at::equal(weights.at(item.key()), wanted.to(at::kDouble))) << item.key();
             }
             for (const auto& buffer : model->named_buffers()) {
               EXPECT_TRUE(at::equal(buffer.value().to(at::kDouble),
                                     eager->named_buffers()[buffer.key()].to(at::kDouble)))
                   << buffer.key();
             }
             Train(engine, group, 1);
           })) {
        EXPECT_EQ(TextOf(error), "") << "stage " << stage;
      }
    }
  }
}

}  // namespace
}  // namespace dslaunch::zero_engine_test
