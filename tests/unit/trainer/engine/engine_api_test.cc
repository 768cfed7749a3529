// Tests the functions of an engine other than training steps, at every ZeRO stage with two ranks.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/functional.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adamw.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/schedulers/step_lr.h>
#include <torch/optim/sgd.h>

#include <atomic>
#include <mutex>
#include <optional>

#include "dslaunch/engine.h"
#include "dslaunch/model.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/trainer/expect_refused.h"
#include "tests/unit/trainer/ranks.h"
#include "trainer/parallel/whole_tensor.h"

namespace dslaunch::engine_api_test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr int64_t kRows = 4;  // samples of a micro-batch on one rank

// A model with sizes that cannot be divided by two ranks, and a buffer that each rank fills from
// its own samples.
struct Net : torch::nn::Module {
  Net() {
    first = register_module("first", torch::nn::Linear(5, 7));
    last = register_module("last", torch::nn::Linear(7, 3));
    queue = register_buffer("queue", at::zeros({5}));
  }
  at::Tensor forward(const at::Tensor& x) {
    if (is_training()) queue.copy_(x.detach().mean(0));
    return last(first(x).tanh());
  }
  torch::nn::Linear first{nullptr}, last{nullptr};
  at::Tensor queue;
};

// Makes a model. One at a time, because ranks are threads and share the default generator.
template <class M = Net>
std::shared_ptr<M> Make() {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  at::manual_seed(3);
  return std::make_shared<M>();
}

constexpr char kSgd[] = R"("optimizer": {"type": "SGD", "params": {"lr": 0.1}})";

std::string Config(int stage, const std::string& more = kSgd, int steps = 1) {
  return R"({"train_micro_batch_size_per_gpu": )" + std::to_string(kRows) +
         R"(, "gradient_accumulation_steps": )" + std::to_string(steps) +
         R"(, "gradient_clipping": 0, "zero_optimization": {"stage": )" + std::to_string(stage) +
         R"(, "stage3_param_persistence_threshold": 8, "reduce_bucket_size": 30})" +
         (more.empty() ? "" : ", " + more) + "}";
}

// Returns the samples of `rank` in micro-batch `number`; the samples of all ranks if `rank` is -1.
at::Tensor Inputs(int number, int rank) {
  const at::Tensor all =
      (at::arange(2 * kRows * 5, at::kFloat) * 0.37 + number).sin().view({2 * kRows, 5});
  return rank < 0 ? all : all.slice(0, rank * kRows, (rank + 1) * kRows);
}

at::Tensor SquareLoss(const at::Tensor& output) { return output.to(at::kFloat).square().mean(); }

template <class M>
void TrainStep(Engine<M>& engine, const ProcessGroup& group, int number) {
  engine.Backward(SquareLoss(engine.Forward(Inputs(number, group.rank()))));
  engine.Step();
}

template <class M>
std::map<std::string, at::Tensor> Weights(Engine<M>& engine) {
  std::map<std::string, at::Tensor> weights;
  for (const auto& item : engine.model().named_parameters()) {
    weights[item.key()] = engine.core().GetFullFp32Parameter(item.value());
  }
  return weights;
}

void ExpectClose(const at::Tensor& got, const at::Tensor& wanted, double tolerance,
                 const std::string& what) {
  ASSERT_EQ(got.sizes(), wanted.sizes()) << what;
  if (got.numel() == 0) return;
  EXPECT_LE((got - wanted).abs().max().item<double>(), tolerance) << what;
}

void ExpectClose(const std::map<std::string, at::Tensor>& got,
                 const std::map<std::string, at::Tensor>& wanted, double tolerance) {
  ASSERT_EQ(got.size(), wanted.size());
  for (const auto& [name, tensor] : wanted) ExpectClose(got.at(name), tensor, tolerance, name);
}

void InTwoRanks(const std::function<void(const ProcessGroup&)>& rank) {
  for (const std::exception_ptr& error : RunRanks(2, rank)) EXPECT_EQ(TextOf(error), "");
}

void AtEveryStage(const std::function<void(int stage, const ProcessGroup&)>& rank) {
  for (int stage = 0; stage <= 3; ++stage) {
    SCOPED_TRACE(stage);
    InTwoRanks([&](const ProcessGroup& group) { rank(stage, group); });
  }
}

TEST(EngineApiTest, BroadcastsBuffersUnlessTurnedOff) {
  for (const std::string precision : {"", R"(, "bf16": {"enabled": true})"}) {
    AtEveryStage([&](int stage, const ProcessGroup& group) {
      const auto queue_after = [&](const std::string& more, bool broadcast) {
        const auto model = Make();
        model->queue.fill_(group.rank() + 1);
        auto engine = Initialize(Config(stage, kSgd + precision + more), model, group, CrossEntropy,
                                 {.broadcast_buffers = broadcast});
        std::vector<at::Tensor> seen = {model->queue.to(at::kFloat).clone()};
        TrainStep(engine, group, 0);
        seen.push_back(model->queue.to(at::kFloat).clone());
        return seen;
      };
      const auto own = [&](int rank) { return Inputs(0, rank).mean(0); };
      const std::vector<at::Tensor> shared = queue_after("", true);
      EXPECT_TRUE(at::equal(shared[0], at::ones({5}))) << "rank 0's from the start";
      ExpectClose(shared[1], own(0), 1e-2, "rank 0's after a step");
      for (const auto& kept :
           {queue_after(R"(, "broadcast_buffers": false)", true), queue_after("", false)}) {
        EXPECT_TRUE(at::equal(kept[0], at::full({5}, group.rank() + 1.0)));
        ExpectClose(kept[1], own(group.rank()), 1e-2, "its own after a step");
      }
    });
  }
}

// A batch norm with its own forward pass, because LibTorch's on a CPU takes no fp16 input.
struct Norm : torch::nn::BatchNorm1dImpl {
  Norm() : BatchNorm1dImpl(4) {}
  at::Tensor forward(const at::Tensor& x) { return x.to(at::kFloat) * weight + bias; }
};

struct NormNet : torch::nn::Module {
  NormNet() {
    linear = register_module("linear", torch::nn::Linear(4, 4));
    norm = register_module("norm", std::make_shared<Norm>());
  }
  at::Tensor forward(const at::Tensor& x) {
    return at::cat({norm->forward(x), linear(x).to(at::kFloat)});
  }
  torch::nn::Linear linear{nullptr};
  std::shared_ptr<Norm> norm;
};

TEST(EngineApiTest, KeepsGradientsOfFp32BatchNormsInFp32) {
  const at::Tensor factor = at::tensor({1 + 0x1p-12, 3e-9, 3e5, 1.0}, at::kFloat);
  for (const int steps : {1, 2}) {
    AtEveryStage([&](int stage, const ProcessGroup& group) {
      const auto model = Make<NormNet>();
      auto engine = Initialize(
          Config(stage, std::string(kSgd) + R"(, "amp": {"enabled": true, "opt_level": "O2",
                                          "loss_scale": 1})",
                 steps),
          model, group);
      EXPECT_EQ(model->norm->bias.scalar_type(), at::kFloat);
      const at::Tensor before = engine.core().GetFullFp32Parameter(model->norm->bias);
      for (int part = 0; part < steps; ++part) {
        const at::Tensor output = engine.Forward(at::zeros({1, 4}));
        engine.Backward((output[0] * factor).sum() + output[1].sum());
        if (part + 1 < steps) engine.Step();
      }
      // In fp16 these values would be 1, 0, inf and 1.
      const at::Tensor gradient = engine.core().GetFullGradient(model->norm->bias);
      EXPECT_TRUE(at::equal(gradient, factor)) << gradient;
      engine.Step();
      ExpectClose(engine.core().GetFullFp32Parameter(model->norm->bias), before - 0.1 * factor,
                  1e-2, "the bias");
    });
  }
}

TEST(EngineApiTest, AcceptsGroupOfFrozenParametersOnly) {
  AtEveryStage([](int stage, const ProcessGroup& group) {
    const auto model = Make();
    for (at::Tensor& parameter : model->first->parameters()) parameter.set_requires_grad(false);
    auto engine = Initialize(Config(stage, R"("optimizer": {"type": "SGD", "params": {"lr": 0.1},
                         "param_groups": [{"names": ["first.*"], "lr": 9}]})"),
                             model, group);
    EXPECT_THAT(engine.GetLearningRates(), ElementsAre(9, 0.1));
    const auto before = Weights(engine);
    engine.Backward(SquareLoss(engine.Forward(Inputs(0, group.rank()))));
    engine.Step();
    const auto after = Weights(engine);
    EXPECT_TRUE(at::equal(after.at("first.weight"), before.at("first.weight")));
    EXPECT_FALSE(at::equal(after.at("last.bias"), before.at("last.bias")));
    ExpectRefused(
        [&] {
          Initialize(Config(stage, R"("optimizer": {"type": "SGD", "params": {"lr": 0.1},
                         "param_groups": [{"names": ["frist.*"], "lr": 9}]})"),
                     Make(), group);
        },
        ExitCode::kBadInput, HasSubstr("matches no parameter that is not in an earlier group"));
  });
}

TEST(EngineApiTest, UsesLearningRatesSetByTheProgram) {
  AtEveryStage([](int stage, const ProcessGroup& group) {
    const auto model = Make();
    auto engine = Initialize(Config(stage, R"("optimizer": {"type": "SGD", "params": {"lr": 0.1},
                         "param_groups": [{"max_dims": 1, "lr": 0.01}]})"),
                             model, group);
    EXPECT_THAT(engine.GetLearningRates(), ElementsAre(0.01, 0.1));
    engine.core().SetLearningRates({0, 0.5});
    EXPECT_THAT(engine.GetLearningRates(), ElementsAre(0, 0.5));
    EXPECT_EQ(engine.lr(), 0.5);
    const auto before = Weights(engine);
    engine.Backward(SquareLoss(engine.Forward(Inputs(0, group.rank()))));
    const at::Tensor gradient = engine.core().GetFullGradient(model->first->weight);
    engine.Step();
    const auto after = Weights(engine);
    EXPECT_TRUE(at::equal(after.at("first.bias"), before.at("first.bias"))) << "a rate of 0";
    ExpectClose(after.at("first.weight"), before.at("first.weight") - 0.5 * gradient, 1e-6, "");
    EXPECT_THAT(engine.GetLearningRates(), ElementsAre(0, 0.5)) << "until it is set again";
    engine.SetLearningRate(0.25);
    EXPECT_THAT(engine.GetLearningRates(), ElementsAre(0.25, 0.25));
    ExpectRefused([&] { engine.core().SetLearningRates({1}); }, ExitCode::kBadInput,
                  HasSubstr("1 values for 2 groups"));
    ExpectRefused([&] { engine.SetLearningRate(-1); }, ExitCode::kBadInput,
                  HasSubstr("not a learning rate"));
  });
  InTwoRanks([](const ProcessGroup& group) {
    auto engine = Initialize(
        Config(0, std::string(kSgd) + R"(, "scheduler": {"type": "WarmupLR", "params": {}})"),
        Make(), group);
    ExpectRefused([&] { engine.SetLearningRate(1); }, ExitCode::kBadInput,
                  AllOf(HasSubstr("the scheduler WarmupLR sets the learning rate"),
                        HasSubstr("leave \"scheduler\" out")));
  });
}

// Tests run with each of these precisions, because gradients in 16 bit and in fp32 are exchanged by
// different code.
struct PrecisionCase {
  std::string config;  // added to a configuration
  double tolerance = 0;
};
const std::vector<PrecisionCase>& Precisions() {
  static const std::vector<PrecisionCase> cases = {
      {kSgd, 1e-5},
      {std::string(kSgd) + R"(, "bf16": {"enabled": true})", 2e-2},
      {std::string(kSgd) + R"(, "fp16": {"enabled": true, "initial_scale_power": 6})", 3e-3}};
  return cases;
}

TEST(EngineApiTest, NoSyncAccumulatesLikeMicroBatches) {
  for (const PrecisionCase& precision : Precisions()) {
    AtEveryStage([&](int stage, const ProcessGroup& group) {
      auto wanted = Initialize(Config(stage, precision.config, /*steps=*/3), Make(), group);
      for (int part = 0; part < 6; ++part) TrainStep(wanted, group, part);

      auto engine = Initialize(Config(stage, precision.config), Make(), group);
      for (int step = 0; step < 2; ++step) {
        const auto backward = [&](int part) {
          engine.Backward(SquareLoss(engine.Forward(Inputs(3 * step + part, group.rank()))) / 3);
        };
        {
          const NoSyncScope no_sync = engine.NoSync();
          backward(0);
          const NoSyncScope nested = engine.NoSync();
          backward(1);
          ExpectRefused([&] { engine.Step(); }, ExitCode::kBadInput,
                        HasSubstr("Step was called within NoSync"));
        }
        ExpectRefused([&] { engine.Step(); }, ExitCode::kBadInput,
                      HasSubstr("one within NoSync does not count"));
        backward(2);
        EXPECT_TRUE(engine.Step());
      }
      EXPECT_EQ(engine.global_steps(), 2);
      EXPECT_NEAR(engine.core().grad_norm(), wanted.core().grad_norm(), precision.tolerance);
      ExpectClose(Weights(engine), Weights(wanted), precision.tolerance);
    });
  }
}

TEST(EngineApiTest, AddsUpSeveralBackwardPassesOfOneForward) {
  for (const PrecisionCase& precision : Precisions()) {
    for (const int steps : {1, 2}) {
      AtEveryStage([&](int stage, const ProcessGroup& group) {
        const std::string config = Config(stage, precision.config, steps);
        auto wanted = Initialize(config, Make(), group);
        auto engine = Initialize(config, Make(), group);
        for (int part = 0; part < 2 * steps; ++part) {
          const at::Tensor inputs = Inputs(part, group.rank());
          const at::Tensor both = wanted.Forward(inputs).to(at::kFloat);
          wanted.Backward(both.square().mean() + 2 * both.mean() + both.select(1, 0).exp().sum());
          wanted.Step();

          const at::Tensor output = engine.Forward(inputs).to(at::kFloat);
          engine.Backward(output.square().mean(), {.retain_graph = true});
          ExpectRefused([&] { engine.Step(); }, ExitCode::kBadInput,
                        HasSubstr("call the last one without retain_graph"));
          engine.Backward(2 * output.mean(), {.retain_graph = true});
          engine.Backward(output.select(1, 0).exp().sum());
          engine.Step();
        }
        EXPECT_EQ(engine.global_steps(), 2);
        ExpectClose(Weights(engine), Weights(wanted), precision.tolerance);
      });
    }
  }
}

// Compares the tensors with plain LibTorch's after training on the samples of both ranks.
TEST(EngineApiTest, GetsAndSetsFullTensors) {
  struct Case {
    std::string precision;
    double tolerance;
  };
  for (const Case& c : {Case{"", 1e-6}, Case{R"(, "bf16": {"enabled": true})", 2e-2},
                        Case{R"(, "fp16": {"enabled": true, "initial_scale_power": 6})", 3e-3}}) {
    AtEveryStage([&](int stage, const ProcessGroup& group) {
      const auto plain = Make(), model = Make();
      auto engine = Initialize(
          Config(stage, R"("optimizer": {"type": "Adam", "params": {"lr": 0.01}})" + c.precision),
          model, group);
      SquareLoss(plain->forward(Inputs(0, -1))).backward();
      ExpectRefused([&] { engine.core().GetFullGradient(model->last->weight); },
                    ExitCode::kBadInput, HasSubstr("after the last Backward of a step"));
      engine.Backward(SquareLoss(engine.Forward(Inputs(0, group.rank()))));
      for (const auto& item : plain->named_parameters()) {
        const at::Tensor parameter = model->named_parameters()[item.key()];
        const at::Tensor weight = engine.core().GetFullFp32Parameter(parameter);
        EXPECT_EQ(weight.scalar_type(), at::kFloat);
        ExpectClose(weight, item.value(), c.tolerance, item.key());
        ExpectClose(engine.core().GetFullGradient(parameter), item.value().grad(), c.tolerance,
                    item.key());
      }
      const at::Tensor &weight = model->last->weight, &bias = model->first->bias;
      engine.core().SetFullGradient(bias, at::zeros({7}));
      const at::Tensor gradient = engine.core().GetFullGradient(weight);
      const at::Tensor bias_before = engine.core().GetFullFp32Parameter(bias);
      engine.Step();
      EXPECT_TRUE(at::equal(engine.core().GetFullFp32Parameter(bias), bias_before));
      ExpectClose(engine.core().GetFullOptimizerState(weight, "exp_avg"), 0.1 * gradient, 1e-6,
                  "exp_avg");
      engine.core().SetFullOptimizerState(weight, at::full({3, 7}, 0.5), "exp_avg");
      EXPECT_TRUE(
          at::equal(engine.core().GetFullOptimizerState(weight, "exp_avg"), at::full({3, 7}, 0.5)));
      const at::Tensor value = at::arange(21, at::kFloat).view({3, 7}) / 64;
      engine.core().SetFullFp32Parameter(weight, value);
      EXPECT_TRUE(at::equal(engine.core().GetFullFp32Parameter(weight), value));
      const GatheredParameters gathered(engine.core(), {weight});
      EXPECT_TRUE(at::equal(weight.detach().to(at::kFloat), value)) << "the model's own too";
    });
  }
}

TEST(EngineApiTest, RejectsFullTensorsThatDoNotExist) {
  AtEveryStage([](int stage, const ProcessGroup& group) {
    const auto model = Make();
    model->first->weight.set_requires_grad(false);
    auto engine = Initialize(Config(stage, R"("optimizer": {"type": "AdamW"})"), model, group);
    EngineCore& core = engine.core();
    EXPECT_EQ(core.GetFullFp32Parameter(model->first->weight).sizes(), at::IntArrayRef({7, 5}))
        << "a frozen one too";
    core.SetFullFp32Parameter(model->first->weight, at::ones({7, 5}));
    EXPECT_TRUE(at::equal(core.GetFullFp32Parameter(model->first->weight), at::ones({7, 5})));
    ExpectRefused([&] { core.GetFullGradient(model->first->weight); }, ExitCode::kBadInput,
                  HasSubstr("the parameter first.weight is frozen"));
    ExpectRefused([&] { core.GetFullOptimizerState(model->last->weight, "momentum_buffer"); },
                  ExitCode::kBadInput, HasSubstr("it keeps exp_avg, exp_avg_sq"));
    ExpectRefused([&] { core.GetFullFp32Parameter(at::ones({3})); }, ExitCode::kBadInput,
                  HasSubstr("not a parameter of this engine's model"));
    ExpectRefused([&] { core.SetFullFp32Parameter(model->last->weight, at::ones({7})); },
                  ExitCode::kBadInput,
                  HasSubstr("the value for last.weight has the shape [7], not that"));
  });
}

// Returns the elements of the tensor `name` that this rank holds, taken from `whole`; empty if it
// holds none.
at::Tensor OwnPart(const EngineCore& core, const std::string& name, const at::Tensor& whole) {
  for (const TensorPart& part : core.ModelState()) {
    if (part.name == name) return PartOf(whole.flatten(), part.shard);
  }
  return at::empty({0}, whole.options());
}

TEST(EngineApiTest, GetsAndSetsLocalTensors) {
  struct Case {
    std::string precision;
    double tolerance;
  };
  for (const Case& c : {Case{"", 1e-6}, Case{R"(, "bf16": {"enabled": true})", 2e-2},
                        Case{R"(, "fp16": {"enabled": true, "initial_scale_power": 6})", 3e-3}}) {
    AtEveryStage([&](int stage, const ProcessGroup& group) {
      const auto plain = Make(), model = Make();
      auto engine = Initialize(
          Config(stage, R"("optimizer": {"type": "Adam", "params": {"lr": 0.01}})" + c.precision),
          model, group);
      EngineCore& core = engine.core();
      SquareLoss(plain->forward(Inputs(0, -1))).backward();
      ExpectRefused([&] { core.GetLocalGradient(model->last->weight); }, ExitCode::kBadInput,
                    HasSubstr("GetLocalGradient was called where gradients are not complete"));
      engine.Backward(SquareLoss(engine.Forward(Inputs(0, group.rank()))));
      for (const auto& item : plain->named_parameters()) {
        const at::Tensor parameter = model->named_parameters()[item.key()];
        const at::Tensor weight = core.GetLocalFp32Parameter(parameter);
        EXPECT_EQ(weight.scalar_type(), at::kFloat);
        ExpectClose(weight, OwnPart(core, item.key(), item.value()), c.tolerance, item.key());
        ExpectClose(core.GetLocalGradient(parameter),
                    OwnPart(core, item.key(), item.value().grad()), c.tolerance, item.key());
        at::Tensor elements = at::scalar_tensor(weight.numel(), at::kLong);
        group.AllReduce(elements);
        EXPECT_EQ(elements.item<int64_t>(), (stage == 0 ? 2 : 1) * parameter.numel());
      }
      const std::string name = "last.weight";
      const at::Tensor &weight = model->last->weight, &bias = model->first->bias;
      // Only SetLocalFp32Parameter is collective. If every rank has the whole tensor, all ranks set
      // the same values.
      const at::Tensor own_gradient = core.GetLocalGradient(weight);
      if (stage == 0 || group.rank() == 0)
        core.SetLocalGradient(weight, at::full_like(own_gradient, 0.25));
      at::Tensor held = at::scalar_tensor(own_gradient.numel(), at::kLong);
      group.Broadcast(held, 0);
      EXPECT_EQ((core.GetFullGradient(weight) == 0.25).sum().item<int64_t>(), held.item<int64_t>());
      core.SetLocalGradient(bias, at::zeros_like(core.GetLocalGradient(bias)));
      const at::Tensor gradient = core.GetLocalGradient(weight);
      const at::Tensor bias_before = core.GetFullFp32Parameter(bias);
      engine.Step();
      EXPECT_TRUE(at::equal(core.GetFullFp32Parameter(bias), bias_before));
      ExpectClose(core.GetLocalOptimizerState(weight, "exp_avg"), 0.1 * gradient, 1e-6, "exp_avg");

      const at::Tensor value = at::arange(21, at::kFloat).view({3, 7}) / 64;
      const at::Tensor own_value = OwnPart(core, name, value);
      core.SetLocalOptimizerState(weight, own_value, "exp_avg");
      EXPECT_TRUE(at::equal(core.GetLocalOptimizerState(weight, "exp_avg"), own_value));
      EXPECT_TRUE(at::equal(core.GetFullOptimizerState(weight, "exp_avg"), value));
      core.SetLocalFp32Parameter(weight, own_value);
      EXPECT_TRUE(at::equal(core.GetLocalFp32Parameter(weight), own_value));
      EXPECT_TRUE(at::equal(core.GetFullFp32Parameter(weight), value));
      const GatheredParameters gathered(core, {weight});
      EXPECT_TRUE(at::equal(weight.detach().to(at::kFloat), value)) << "the model's own too";
    });
  }
}

TEST(EngineApiTest, RejectsLocalTensorsThatDoNotExist) {
  AtEveryStage([](int stage, const ProcessGroup& group) {
    const auto model = Make();
    model->first->weight.set_requires_grad(false);
    auto engine = Initialize(Config(stage, R"("optimizer": {"type": "AdamW"})"), model, group);
    EngineCore& core = engine.core();
    const at::Tensor frozen = core.GetLocalFp32Parameter(model->first->weight);
    if (stage < 3) EXPECT_EQ(frozen.numel(), 35) << "whole on every rank";
    core.SetLocalFp32Parameter(model->first->weight, at::ones_like(frozen));
    EXPECT_TRUE(at::equal(core.GetFullFp32Parameter(model->first->weight), at::ones({7, 5})));
    ExpectRefused([&] { core.GetLocalGradient(model->first->weight); }, ExitCode::kBadInput,
                  HasSubstr("the parameter first.weight is frozen"));
    ExpectRefused([&] { core.GetLocalOptimizerState(model->last->weight, "momentum_buffer"); },
                  ExitCode::kBadInput, HasSubstr("it keeps exp_avg, exp_avg_sq"));
    ExpectRefused([&] { core.GetLocalFp32Parameter(at::ones({3})); }, ExitCode::kBadInput,
                  HasSubstr("not a parameter of this engine's model"));
    const int64_t held = core.GetLocalFp32Parameter(model->last->weight).numel();
    ExpectRefused([&] { core.SetLocalFp32Parameter(model->last->weight, at::ones({22})); },
                  ExitCode::kBadInput,
                  HasSubstr("the value has 22 elements; this rank holds " + std::to_string(held) +
                            " of last.weight"));
    ExpectRefused([&] { core.SetLocalFp32Parameter(model->last->weight, at::Tensor()); },
                  ExitCode::kBadInput, HasSubstr("the value has no elements"));
  });
}

using torch::optim::AdamWOptions;

TEST(EngineApiTest, UsesOptimizerAndSchedulerOfTheProgram) {
  for (const std::string precision : {"", R"("bf16": {"enabled": true})"}) {
    AtEveryStage([&](int stage, const ProcessGroup& group) {
      const std::string with_adamw =
          R"("optimizer": {"type": "AdamW", "params": {"lr": 0.01, "weight_decay": 0.1}})";
      auto wanted = Initialize(
          Config(stage, with_adamw + (precision.empty() ? "" : ", " + precision)), Make(), group);

      std::shared_ptr<torch::optim::AdamW> adamw;
      const InitializeOptions options = {
          .make_optimizer = [&](const std::vector<NamedTensor>& weights) {
            std::vector<at::Tensor> tensors;
            for (const NamedTensor& weight : weights) {
              EXPECT_EQ(weight.tensor.scalar_type(), at::kFloat) << "the master weight";
              tensors.push_back(weight.tensor);
            }
            adamw = std::make_shared<torch::optim::AdamW>(tensors,
                                                          AdamWOptions(0.01).weight_decay(0.1));
            return adamw;
          }};
      auto engine = Initialize(Config(stage, precision), Make(), group, CrossEntropy, options);
      torch::optim::StepLR scheduler(*adamw, 2, 0.5);
      for (int step = 0; step < 5; ++step) {
        wanted.SetLearningRate(engine.lr());
        TrainStep(wanted, group, step);
        TrainStep(engine, group, step);
        scheduler.step();
      }
      EXPECT_LT(engine.lr(), 0.01) << "the scheduler's";
      ExpectClose(Weights(engine), Weights(wanted), 1e-5);
      engine.SetLearningRate(0.125);
      EXPECT_EQ(adamw->param_groups()[0].options().get_lr(), 0.125);
    });
  }
}

TEST(EngineApiTest, OmitsStateOfProgramsOptimizerFromCheckpoint) {
  for (int stage = 0; stage <= 3; ++stage) {
    const TempDir folder;
    InTwoRanks([&](const ProcessGroup& group) {
      const auto make = [&] {
        return Initialize(Config(stage, ""), Make(), group, CrossEntropy,
                          {.make_optimizer = [](const std::vector<NamedTensor>& weights) {
                            std::vector<at::Tensor> tensors;
                            for (const NamedTensor& weight : weights)
                              tensors.push_back(weight.tensor);
                            return std::make_shared<torch::optim::AdamW>(tensors);
                          }});
      };
      std::map<std::string, at::Tensor> weights;
      {
        auto engine = make();
        TrainStep(engine, group, 0);
        engine.SaveCheckpoint(folder.path());
        weights = Weights(engine);
      }
      auto engine = make();
      ExpectRefused([&] { engine.LoadCheckpoint(folder.path()); }, ExitCode::kBadInput,
                    AllOf(HasSubstr("no state of an optimizer that the program gave"),
                          HasSubstr("load_optimizer_states to false")));
      ASSERT_TRUE(engine.LoadCheckpoint(folder.path(), "", {.load_optimizer_states = false}));
      ExpectClose(Weights(engine), weights, 0);
      EXPECT_EQ(engine.global_steps(), 1);
    });
  }
}

// Derived from SGD, so the engine must assume that it uses norms of whole parameters.
struct OwnSgd : torch::optim::SGD {
  using SGD::SGD;
};

TEST(EngineApiTest, RejectsUnsuitableOptimizersOfTheProgram) {
  using Tensors = std::vector<at::Tensor>;
  const auto refusal =
      [](const ProcessGroup& group, const std::string& config,
         const std::function<std::shared_ptr<torch::optim::Optimizer>(Tensors)>& make,
         const testing::Matcher<std::string>& message) {
        ExpectRefused(
            [&] {
              Initialize(config, Make(), group, CrossEntropy,
                         {.make_optimizer = [&](const std::vector<NamedTensor>& weights) {
                           Tensors tensors;
                           for (const NamedTensor& weight : weights)
                             tensors.push_back(weight.tensor);
                           return make(std::move(tensors));
                         }});
            },
            ExitCode::kBadInput, message);
      };
  const auto sgd = [](const Tensors& tensors) {
    return std::make_shared<torch::optim::SGD>(tensors, 0.1);
  };
  const auto own = [](const Tensors& tensors) { return std::make_shared<OwnSgd>(tensors, 0.1); };
  AtEveryStage([&](int stage, const ProcessGroup& group) {
    refusal(group, Config(stage), sgd, HasSubstr("leave one of them out"));
    refusal(group, Config(stage, R"("scheduler": {"type": "WarmupLR", "params": {}})"), sgd,
            HasSubstr("the configuration's scheduler WarmupLR cannot set its learning rate"));
    refusal(
        group, Config(stage, ""), [](const Tensors&) { return nullptr; },
        HasSubstr("the function returned none"));
    refusal(
        group, Config(stage, ""),
        [](const Tensors& tensors) { return std::make_shared<torch::optim::LBFGS>(tensors); },
        HasSubstr("LBFGS computes the loss again in its step"));
    refusal(
        group, Config(stage, ""),
        [](const Tensors&) {
          return std::make_shared<torch::optim::SGD>(Tensors{at::ones({3})}, 0.1);
        },
        HasSubstr("a tensor that it was not given"));
    refusal(
        group, Config(stage, ""),
        [](Tensors tensors) {
          tensors.erase(tensors.begin());
          return std::make_shared<torch::optim::SGD>(tensors, 0.1);
        },
        HasSubstr("the optimizer leaves out the parameter "));
    const auto train = [&](const std::string& config) {
      auto engine = Initialize(config, Make(), group, CrossEntropy,
                               {.make_optimizer = [](const std::vector<NamedTensor>& weights) {
                                 Tensors tensors;
                                 for (const NamedTensor& weight : weights) {
                                   tensors.push_back(weight.tensor);
                                 }
                                 return std::make_shared<OwnSgd>(tensors, 0.1);
                               }});
      TrainStep(engine, group, 0);
      return Weights(engine);
    };
    auto wanted = Initialize(Config(stage), Make(), group);
    TrainStep(wanted, group, 0);
    if (stage == 0) {
      ExpectClose(train(Config(stage, "")), Weights(wanted), 1e-6);
      refusal(group, Config(stage, R"("parallel": {"mode": "parameter_server", "servers": 1})"),
              own, HasSubstr("must treat each element by itself"));
    } else {
      refusal(group, Config(stage, ""), own,
              AllOf(HasSubstr("must treat each element by itself"),
                    HasSubstr("\"zero_allow_untested_optimizer\": true")));
    }
    ExpectClose(train(Config(stage, R"("zero_allow_untested_optimizer": true)")), Weights(wanted),
                1e-6);
  });
}

struct OtherHead : torch::nn::Module {
  OtherHead() {
    first = register_module("first", torch::nn::Linear(5, 7));
    head = register_module("head", torch::nn::Linear(7, 2));
  }
  at::Tensor forward(const at::Tensor& x) { return head(first(x).tanh()); }
  torch::nn::Linear first{nullptr}, head{nullptr};
};

TEST(EngineApiTest, LoadsMatchingPartOfAnotherModelsCheckpoint) {
  AtEveryStage([](int stage, const ProcessGroup& group) {
    static std::optional<TempDir> folder;
    if (group.rank() == 0) folder.emplace();
    group.Barrier();
    const std::string adam = R"("optimizer": {"type": "Adam", "params": {"lr": 0.01}})";
    std::map<std::string, at::Tensor> saved;
    at::Tensor momentum;
    {
      auto engine = Initialize(Config(stage, adam), Make(), group);
      TrainStep(engine, group, 0);
      engine.SaveCheckpoint(folder->path());
      saved = Weights(engine);
      momentum = engine.core().GetFullOptimizerState(engine.model().first->weight, "exp_avg");
    }
    auto engine = Initialize(Config(stage, adam), Make<OtherHead>(), group);
    const auto fresh = Weights(engine);
    ExpectRefused([&] { engine.LoadCheckpoint(folder->path()); }, ExitCode::kBadInput,
                  HasSubstr("head"));
    const auto loaded = engine.LoadCheckpoint(folder->path(), "", {.load_module_strict = false});
    ASSERT_TRUE(loaded);
    EXPECT_THAT(loaded->missing_keys, ElementsAre("head.bias", "head.weight"));
    EXPECT_THAT(loaded->unexpected_keys, ElementsAre("last.bias", "last.weight", "queue"));
    EXPECT_THAT(loaded->reason,
                AllOf(HasSubstr("; not in the checkpoint: head.bias, head.weight"),
                      HasSubstr("; not in the model: last.bias, last.weight, queue")));
    const auto weights = Weights(engine);
    EXPECT_TRUE(at::equal(weights.at("first.weight"), saved.at("first.weight")));
    EXPECT_TRUE(at::equal(weights.at("head.weight"), fresh.at("head.weight")));
    EXPECT_TRUE(at::equal(
        engine.core().GetFullOptimizerState(engine.model().first->weight, "exp_avg"), momentum));
    TrainStep(engine, group, 1);
    group.Barrier();
    if (group.rank() == 0) folder.reset();
  });
}

// A model whose layers count how often they run.
struct Layered : Model {
  Layered() {
    for (int i = 0; i < 3; ++i) {
      layers.push_back(register_module("layer" + std::to_string(i), torch::nn::Linear(5, 5)));
    }
  }
  at::Tensor forward(const at::Tensor& x) override {
    at::Tensor y = x;
    for (const ModelLayer& layer : Layers()) y = layer.forward(y);
    return y;
  }
  std::vector<ModelLayer> Layers() override {
    std::vector<ModelLayer> all;
    for (torch::nn::Linear& layer : layers) {
      all.push_back({layer->name(), {layer.ptr()}, [this, layer](const at::Tensor& x) mutable {
                       ++runs;
                       return layer(x).tanh();
                     }});
    }
    return all;
  }
  std::vector<torch::nn::Linear> layers;
  int runs = 0;
};

TEST(EngineApiTest, RecomputesActivationsWithoutPipeline) {
  for (const int parts : {1, 2, 9}) {
    AtEveryStage([&](int stage, const ProcessGroup& group) {
      const auto kept = Make<Layered>(), again = Make<Layered>();
      auto wanted = Initialize(Config(stage), kept, group);
      auto engine = Initialize(Config(stage, std::string(kSgd) + R"(, "activation_checkpointing":
                                                {"number_checkpoints": )" +
                                                 std::to_string(parts) + "}"),
                               again, group);
      for (int step = 0; step < 3; ++step) {
        TrainStep(wanted, group, step);
        TrainStep(engine, group, step);
      }
      EXPECT_EQ(kept->runs, 9);
      EXPECT_EQ(again->runs, 18);
      ExpectClose(Weights(engine), Weights(wanted), 1e-7);
      engine.SetEval();
      {
        const at::NoGradGuard no_grad;
        engine.Forward(Inputs(0, group.rank()));
      }
      EXPECT_EQ(again->runs, 21) << "nothing is computed again in evaluation";
    });
  }
}

TEST(EngineApiTest, RecomputesActivationsOfSequential) {
  AtEveryStage([](int stage, const ProcessGroup& group) {
    const auto train = [&](const std::string& more) {
      static std::mutex mutex;
      std::shared_ptr<torch::nn::SequentialImpl> model;
      {
        const std::lock_guard lock(mutex);
        at::manual_seed(3);
        model = torch::nn::Sequential(torch::nn::Linear(5, 6), torch::nn::Functional(at::tanh),
                                      torch::nn::BatchNorm1d(6), torch::nn::Linear(6, 2))
                    .ptr();
      }
      auto engine = Initialize(Config(stage, kSgd + more), model, group);
      for (int step = 0; step < 3; ++step) {
        engine.Backward(SquareLoss(engine.Forward(Inputs(step, group.rank()))));
        engine.Step();
      }
      auto state = Weights(engine);
      for (const auto& buffer : model->named_buffers()) {
        state[buffer.key()] = buffer.value().to(at::kFloat);
      }
      return state;
    };
    ExpectClose(train(R"(, "activation_checkpointing": {"number_checkpoints": 2})"), train(""),
                1e-7);
  });
  InTwoRanks([](const ProcessGroup& group) {
    ExpectRefused(
        [&] {
          Initialize(Config(0, std::string(kSgd) +
                                   R"(, "activation_checkpointing": {"number_checkpoints": 2})"),
                     Make(), group);
        },
        ExitCode::kBadInput,
        AllOf(HasSubstr("activation_checkpointing.number_checkpoints is 2, but the engine does "
                        "not know the layers"),
              HasSubstr("call dslaunch::Recompute")));
  });
}

}  // namespace
}  // namespace dslaunch::engine_api_test
