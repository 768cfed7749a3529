// Tests that engines that each train one stage of a model train like one engine with the whole
// model.
#include "trainer/engine/engine_batch.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/nn/modules/linear.h>

#include <cmath>
#include <condition_variable>
#include <filesystem>
#include <map>
#include <mutex>

#include "dslaunch/error.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/trainer/ranks.h"
#include "trainer/config/engine_config.h"
#include "trainer/engine/activation_meter.h"
#include "trainer/mesh/mesh_groups.h"
#include "trainer/parallel/module_tensors.h"
#include "trainer/parallel/whole_tensor.h"

namespace dslaunch::engine_batch_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int64_t kSamples = 8;  // samples of a micro-batch, over all replicas
constexpr int64_t kWidth = 7;

// The first half, the second half, or all of a model. Both halves contain `shared`, at different
// indices among their parameters, and each half has a buffer.
struct Net : torch::nn::Module {
  Net(bool has_first, bool has_second) {
    if (has_second) {
      second = register_module("second", torch::nn::Linear(kWidth, 3));
      count = register_buffer("count", at::zeros({2}));
    }
    shared = register_parameter("shared", at::zeros({kWidth, kWidth}));
    if (has_first) {
      first = register_module("first", torch::nn::Linear(5, kWidth));
      mean = register_buffer("mean", at::zeros({5}));
    }
    const at::NoGradGuard no_grad;
    for (const auto& item : named_parameters()) {
      const double phase = static_cast<double>(item.key().size());
      item.value().copy_(
          ((at::arange(item.value().numel()) + phase).sin() * 0.4).view(item.value().sizes()));
    }
  }
  at::Tensor First(const at::Tensor& x) {
    mean.copy_(mean * 0.9 + x.detach().mean(0) * 0.1);
    return first(x).tanh().matmul(shared);
  }
  at::Tensor Second(const at::Tensor& y) {
    count.add_(1);
    return second(y.tanh().matmul(shared.t()));
  }
  at::Tensor forward(const at::Tensor& x) { return Second(First(x)); }

  torch::nn::Linear first{nullptr}, second{nullptr};
  at::Tensor shared, mean, count;
};

EngineConfig Config(int zero, int64_t parts) {
  EngineConfig config;
  config.batch = {kSamples * parts, kSamples, parts};
  config.optimizer.emplace().type = OptimizerConfig::Type::kAdamW;
  config.optimizer->lr = 0.02;
  config.optimizer->weight_decay = 0.1;
  config.gradient_clipping = 0.3;
  config.zero.stage = zero;
  config.zero.reduce_bucket_size = 30;
  config.zero.param_persistence_threshold = 4;
  return config;
}

at::Tensor Inputs(int64_t step, int64_t part) {
  return (at::arange(kSamples * 5, at::kFloat) * 0.37 + static_cast<double>(step * 10 + part))
      .sin()
      .view({kSamples, 5});
}
at::Tensor Targets() { return at::arange(kSamples).remainder(3); }

// Passes messages between the stages, which are threads.
class Mail {
 public:
  // A key is the replica, whether the message is a gradient, and the number of the message.
  using Key = std::tuple<int, bool, int64_t>;

  void Put(const Key& key, const at::Tensor& tensor) {
    const std::lock_guard lock(mutex_);
    box_[key] = tensor;
    came_.notify_all();
  }
  at::Tensor Take(const Key& key) {
    std::unique_lock lock(mutex_);
    if (!came_.wait_for(lock, std::chrono::seconds(60), [&] { return box_.contains(key); })) {
      throw std::runtime_error("a stage sends nothing");
    }
    return box_.extract(key).mapped();
  }

 private:
  std::mutex mutex_;
  std::condition_variable came_;
  std::map<Key, at::Tensor> box_;
};

// One rank of a pipeline of two stages and some replicas. The stages share the parameter `shared`.
class Stage {
 public:
  Stage(const ProcessGroup& world, Mail& mail)
      : mail_(mail),
        tied_(MakeRanks(world, {.tied = {{"shared", {0, 1}}}, .tied_buffers = {}})),
        untied_(MakeRanks(world, {})) {
    RecordSubgroup(*tied_->tied()[0].group);
  }

  std::shared_ptr<const MeshGroups> Ranks(bool tied = true) const { return tied ? tied_ : untied_; }
  std::shared_ptr<Net> MakeNet() const { return std::make_shared<Net>(stage() == 0, is_last()); }
  bool is_last() const { return stage() == 1; }
  int stage() const { return tied_->place().stage; }
  int replica() const { return tied_->place().replica; }
  const ProcessGroup& world() const { return tied_->world(); }

  // Trains one step of 1F1B. `last`: whether gradients are exchanged during the last backward pass.
  // Returns the sum of this rank's losses; only the last stage has losses.
  double Train(EngineCore& core, Net& net, bool last) {
    EngineBatch batch(core);
    const int64_t parts = core.accumulation_steps();
    std::vector<at::Tensor> inputs(static_cast<size_t>(parts)), outputs(inputs.size());
    double losses = 0;
    const auto forward = [&](int64_t part) {
      const auto i = static_cast<size_t>(part);
      if (!is_last()) {
        outputs[i] = net.First(core.ToModelDtype(Mine(Inputs(core.global_steps(), part))));
        mail_.Put({replica(), false, sent_++}, outputs[i].detach());
        return;
      }
      inputs[i] = mail_.Take({replica(), false, received_++}).requires_grad_();
      const at::Tensor loss = CrossEntropy(net.Second(inputs[i]), Mine(Targets()));
      losses += loss.item<double>();
      outputs[i] = batch.Root(loss);
    };
    const auto backward = [&](int64_t part) {
      const auto i = static_cast<size_t>(part);
      batch.BeforeBackward(last && part == parts - 1);
      if (is_last()) {
        outputs[i].backward();
        mail_.Put({replica(), true, sent_++}, inputs[i].grad());
      } else {
        outputs[i].backward(mail_.Take({replica(), true, received_++}));
      }
      batch.AfterBackward();
    };
    batch.Begin(/*trains=*/true);
    if (is_last()) {
      for (int64_t part = 0; part < parts; ++part) {
        forward(part);
        backward(part);
      }
    } else {
      forward(0);
      for (int64_t part = 1; part < parts; ++part) {
        forward(part);
        backward(part - 1);
      }
      backward(parts - 1);
    }
    batch.End();
    batch.Step();
    return losses;
  }

  at::Tensor Mine(const at::Tensor& all) const {
    return all.chunk(tied_->mesh().data)[static_cast<size_t>(replica())];
  }

 private:
  static std::shared_ptr<const MeshGroups> MakeRanks(const ProcessGroup& world, ModelCut cut) {
    const Mesh mesh{.pipeline = 2, .data = world.world_size() / 2};
    auto ranks = std::make_shared<MeshGroups>(world, mesh, std::move(cut));
    RecordSubgroup(ranks->data());
    return ranks;
  }

  Mail& mail_;
  const std::shared_ptr<const MeshGroups> tied_, untied_;
  int64_t sent_ = 0, received_ = 0;
};

// For each step, its mean loss and its norm before clipping.
using Steps = std::vector<std::pair<double, double>>;

void ExpectNear(const Steps& got, const Steps& wanted, const std::string& what) {
  ASSERT_EQ(got.size(), wanted.size()) << what;
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_NEAR(got[i].first, wanted[i].first, 1e-6) << what << ", loss of step " << i + 1;
    EXPECT_NEAR(got[i].second, wanted[i].second, 1e-6) << what << ", norm of step " << i + 1;
  }
}

double TrainWhole(Engine<Net>& engine, int64_t share = kSamples, int64_t begin = 0) {
  double losses = 0;
  const int64_t step = engine.global_steps(), parts = engine.core().accumulation_steps();
  for (int64_t part = 0; part < parts; ++part) {
    const at::Tensor loss =
        engine.Loss(engine.Forward(Inputs(step, part).slice(0, begin, begin + share)),
                    Targets().slice(0, begin, begin + share));
    losses += loss.item<double>();
    engine.Backward(loss);
    engine.Step();
  }
  return losses / static_cast<double>(parts);
}

Steps OfOneEngine(const EngineConfig& config, int steps) {
  Steps done;
  for (const auto& error : RunRanks(1, [&](const ProcessGroup& group) {
         auto engine = Initialize(config, std::make_shared<Net>(true, true), group);
         for (int i = 0; i < steps; ++i) {
           const double loss = TrainWhole(engine);
           done.emplace_back(loss, engine.core().grad_norm());
         }
       })) {
    EXPECT_EQ(TextOf(error), "");
  }
  return done;
}

// Runs `stages` on every rank of `replicas` pipelines of two stages, with the rank's Stage.
void InStages(int replicas, const std::function<void(Stage&)>& stages) {
  Mail mail;
  for (const auto& error : RunRanks(2 * replicas, [&](const ProcessGroup& world) {
         Stage stage(world, mail);
         stages(stage);
       })) {
    EXPECT_EQ(TextOf(error), "");
  }
}

TEST(EngineBatchTest, TwoStagesTrainLikeOneEngine) {
  std::map<int64_t, Steps> wanted;  // expected steps, by number of micro-batches
  for (const int64_t parts : {1, 3}) wanted[parts] = OfOneEngine(Config(0, parts), 5);
  for (const int replicas : {1, 2}) {
    InStages(replicas, [&](Stage& stage) {
      for (const int64_t parts : {1, 3}) {
        for (const int zero : {0, 1, 2, 3}) {
          for (const bool last : {true, false}) {
            auto net = stage.MakeNet();
            EngineCore core(Config(zero, parts), *net, stage.Ranks(), Passes::kBatches);
            Steps got;
            for (int step = 0; step < 5; ++step) {
              std::vector<double> loss = {stage.Train(core, *net, last)};
              stage.world().AllReduceSum(loss);
              got.emplace_back(loss[0] / static_cast<double>(parts * replicas), core.grad_norm());
            }
            ExpectNear(got, wanted[parts],
                       std::to_string(replicas) + " replicas, ZeRO " + std::to_string(zero) + ", " +
                           std::to_string(parts) + " micro-batches, last " + std::to_string(last) +
                           ", rank " + std::to_string(stage.world().rank()));
            EXPECT_EQ(core.micro_steps(), 5 * parts);
          }
        }
      }
    });
  }
}

// The copies of a tied weight must never differ, because no later operation would make them equal
// again.
TEST(EngineBatchTest, KeepsTiedWeightsEqualBitForBit) {
  using Type = OptimizerConfig::Type;
  for (const int replicas : {1, 2, 3}) {
    InStages(replicas, [&](Stage& stage) {
      for (const Type type : {Type::kSgd, Type::kAdamW, Type::kLamb}) {
        for (const Dtype dtype : {Dtype::kFloat32, Dtype::kBFloat16}) {
          for (const int zero : {0, 1, 2, 3}) {
            EngineConfig config = Config(zero, 3);
            config.optimizer->type = type;
            config.optimizer->momentum = 0.9;
            config.precision.model = dtype;
            config.precision.master_weights = dtype != Dtype::kFloat32;
            auto net = stage.MakeNet();
            if (stage.is_last()) {
              const at::NoGradGuard no_grad;
              net->shared.add_(1);  // the first stage's values count
            }
            EngineCore core(config, *net, stage.Ranks(), Passes::kBatches);
            for (int step = 0; step < 4; ++step) stage.Train(core, *net, /*last=*/true);
            const GatheredParameters gathered(core, {net->shared});
            const at::Tensor copies = stage.world().AllGather(net->shared.detach().clone());
            for (int64_t i = 1; i < copies.size(0); ++i) {
              EXPECT_TRUE(at::equal(copies[i], copies[0]))
                  << "optimizer " << static_cast<int>(type) << ", ZeRO " << zero << ", replicas "
                  << replicas << ", bf16 " << (dtype != Dtype::kFloat32) << ", rank " << i;
            }
            EXPECT_LT(copies.abs().max().item<double>(), 0.9) << "they began with the second's";
          }
        }
      }
    });
  }
}

// Adds to .grad() and runs its hooks outside of a backward pass, as deferred weight gradients do.
TEST(EngineBatchTest, AcceptsGradientsOutsideOfBackwardPasses) {
  constexpr int64_t kParts = 3;
  for (const int zero : {0, 1, 2, 3}) {
    std::mutex mutex;
    std::vector<double> norms;
    for (const bool deferred : {false, true}) {
      for (const auto& error : RunRanks(2, [&](const ProcessGroup& world) {
             const auto ranks = std::make_shared<const MeshGroups>(world);
             auto net = std::make_shared<Net>(true, true);
             EngineCore core(Config(zero, kParts), *net, ranks, Passes::kBatches);
             EngineBatch batch(core);
             batch.Begin(true);
             std::vector<std::function<void()>> waiting;
             for (int64_t part = 0; part < kParts; ++part) {
               const at::Tensor x = Inputs(0, part).chunk(2)[static_cast<size_t>(world.rank())];
               at::Tensor y = net->First(x);
               if (!deferred) {
                 y = net->Second(y);
               } else {
                 const at::Tensor input = y.tanh().matmul(net->shared.t());
                 y = at::linear(input, at::zeros({3, kWidth}), net->second->bias);
                 // The weight is detached, so autograd treats it as a constant.
                 y = y + input.matmul(net->second->weight.detach().t());
                 y.register_hook([&, input = input.detach()](const at::Tensor& gradient) {
                   waiting.push_back([&, input, gradient] {
                     at::Tensor weight = net->second->weight;
                     const at::Tensor own = gradient.t().matmul(input);
                     at::Tensor& sum = weight.mutable_grad();
                     sum = sum.defined() ? sum + own : own;
                     (*torch::autograd::impl::post_acc_grad_hooks(weight))(weight);
                   });
                 });
               }
               const at::Tensor targets = Targets().chunk(2)[static_cast<size_t>(world.rank())];
               batch.BeforeBackward(/*last=*/!deferred && part + 1 == kParts);
               batch.Root(CrossEntropy(y, targets)).backward();
               batch.AfterBackward();
             }
             for (const auto& work : waiting) work();
             batch.End();
             batch.Step();
             const std::lock_guard lock(mutex);
             norms.push_back(core.grad_norm());
           })) {
        EXPECT_EQ(TextOf(error), "");
      }
    }
    ASSERT_EQ(norms.size(), 4u);
    for (const double norm : norms) EXPECT_NEAR(norm, norms[0], 1e-6) << "ZeRO " << zero;
  }
}

TEST(EngineBatchTest, FreesWholeGradientsAfterTheBatch) {
  for (const int zero : {2, 3}) {
    for (const auto& error : RunRanks(2, [&](const ProcessGroup& world) {
           const auto ranks = std::make_shared<const MeshGroups>(world);
           auto net = std::make_shared<Net>(true, true);
           EngineCore core(Config(zero, 1), *net, ranks, Passes::kBatches);
           const ActivationMeter meter;
           for (const bool last : {true, false}) {
             EngineBatch batch(core);
             batch.Begin(true);
             // The gathered parameters have 115 elements. The check is a lower bound, because a
             // thread of Gloo may free the buffers' message later.
             EXPECT_GE(meter.live_bytes(), 460) << "what is whole lies there for the batch";
             batch.BeforeBackward(last);
             batch.Root(CrossEntropy(net->forward(Inputs(0, 0)), Targets())).backward();
             batch.AfterBackward();
             batch.End();
             batch.Step();
             EXPECT_LT(meter.live_bytes(), 60) << "ZeRO " << zero << ", last " << last;
           }
         })) {
      EXPECT_EQ(TextOf(error), "");
    }
  }
}

TEST(EngineBatchTest, DropsGradientsOfFailedBatch) {
  for (const int zero : {0, 1, 2, 3}) {
    for (const auto& error : RunRanks(2, [&](const ProcessGroup& world) {
           const auto ranks = std::make_shared<const MeshGroups>(world);
           const auto norm = [&](bool throws) {
             auto net = std::make_shared<Net>(true, true);
             EngineCore core(Config(zero, 2), *net, ranks, Passes::kBatches);
             EngineBatch batch(core);
             bool armed = throws;
             // The gradient of this weight arrives last.
             net->first->weight.register_hook([&](const at::Tensor&) {
               if (armed) throw std::runtime_error("no memory left");
             });
             const auto train = [&](int64_t part) {
               batch.BeforeBackward(part == 1);
               batch.Root(CrossEntropy(net->forward(Inputs(0, part)), Targets())).backward();
               batch.AfterBackward();
             };
             if (throws) {
               batch.Begin(true);
               EXPECT_THROW(train(1), std::runtime_error);
               armed = false;
             }
             batch.Begin(true);
             train(0);
             train(1);
             batch.End();
             batch.Step();
             return core.grad_norm();
           };
           EXPECT_EQ(norm(true), norm(false)) << "ZeRO " << zero;
         })) {
      EXPECT_EQ(TextOf(error), "");
    }
  }
}

TEST(EngineBatchTest, GathersParametersForInference) {
  at::Tensor wanted;
  {
    const at::NoGradGuard no_grad;
    wanted = Net(true, true).forward(Inputs(0, 0));
  }
  for (const int zero : {0, 3}) {
    InStages(2, [&](Stage& stage) {
      auto net = stage.MakeNet();
      EngineCore core(Config(zero, 3), *net, stage.Ranks(), Passes::kBatches);
      const at::NoGradGuard no_grad;
      for (int round = 0; round < 2; ++round) {
        EngineBatch batch(core);
        batch.Begin(/*trains=*/false);
        // Both stages gather parameters. The second stage takes the first stage's output from
        // `Net`, so no message is needed.
        if (!stage.is_last()) {
          net->First(Inputs(0, 0));
        } else {
          const at::Tensor output = net->Second(Net(true, true).First(Inputs(0, 0)));
          EXPECT_TRUE(at::allclose(output, wanted, 1e-6, 1e-6)) << "ZeRO " << zero;
        }
        batch.End();
      }
    });
  }
}

struct Seen {
  std::string error;
  int64_t skipped = 0;
  double loss_scale = 0;
  std::string reason;
  bool operator==(const Seen&) const = default;
};

// Returns the state of each rank after three steps. In step 2, the gradient of the second
// micro-batch is multiplied by `factor` on the first replica of stage 1.
std::vector<Seen> WithBadLoss(EngineConfig config, double factor) {
  std::mutex mutex;
  std::vector<Seen> seen(4);
  Mail mail;
  const auto errors = RunRanks(4, [&](const ProcessGroup& world) {
    Stage stage(world, mail);
    auto net = stage.MakeNet();
    EngineCore core(config, *net, stage.Ranks(), Passes::kBatches);
    for (int step = 0; step < 3; ++step) {
      at::Tensor bias = stage.is_last() ? net->second->bias : at::Tensor();
      if (bias.defined() && step == 1 && stage.replica() == 0) {
        bias.register_hook([calls = std::make_shared<int>(0), factor](const at::Tensor& gradient) {
          return ++*calls == 2 ? gradient * factor : gradient;
        });
      }
      stage.Train(core, *net, /*last=*/true);
    }
    const std::lock_guard lock(mutex);
    seen[static_cast<size_t>(world.rank())] = {"", core.skipped_steps(), core.loss_scale(),
                                               core.skip_reason()};
  });
  for (size_t rank = 0; rank < 4; ++rank) seen[rank].error = TextOf(errors[rank]);
  return seen;
}

TEST(EngineBatchTest, SkipsStepOnAllStagesAfterOverflowOnOne) {
  for (const int zero : {0, 1, 2, 3}) {
    EngineConfig config = Config(zero, 3);
    config.precision.model = Dtype::kFloat16;
    config.precision.master_weights = true;
    config.precision.skip_overflow = true;
    config.precision.loss_scaler.emplace().initial_scale_power = 8;
    config.precision.loss_scaler->hysteresis = 1;
    for (const Seen& seen : WithBadLoss(config, std::numeric_limits<double>::infinity())) {
      EXPECT_EQ(seen.error, "") << "ZeRO " << zero;
      EXPECT_EQ(seen.skipped, 1) << "ZeRO " << zero;
      EXPECT_EQ(seen.loss_scale, 128) << "ZeRO " << zero;
    }
  }
}

TEST(EngineBatchTest, NamesNonFiniteGradientAndStageOnAllRanks) {
  for (const int zero : {0, 1, 2, 3}) {
    for (const Seen& seen : WithBadLoss(Config(zero, 3), std::nan(""))) {
      EXPECT_EQ(seen.error,
                "step 2: the gradient of second.bias (stage 1) is not finite; try a lower "
                "learning rate")
          << "ZeRO " << zero;
    }
  }
}

TEST(EngineBatchTest, NamesRankOfNanLossOnAllRanks) {
  Mail mail;
  for (const auto& error : RunRanks(4, [&](const ProcessGroup& world) {
         Stage stage(world, mail);
         auto net = stage.MakeNet();
         EngineCore core(Config(1, 2), *net, stage.Ranks(), Passes::kBatches);
         stage.Train(core, *net, true);
         EngineBatch batch(core);
         batch.Begin(true);
         for (int part = 0; part < 2; ++part) {
           batch.BeforeBackward(part == 1);
           at::Tensor sum = at::zeros({});
           for (const at::Tensor& parameter : net->parameters()) sum = sum + parameter.sum();
           if (stage.is_last()) {
             sum = batch.Root(sum * (part == 1 && stage.replica() == 1 ? std::nan("") : 1.0));
           }
           sum.backward();
           batch.AfterBackward();
         }
         batch.End();
         batch.Step();
       })) {
    EXPECT_THAT(TextOf(error), HasSubstr("step 2: the loss of rank 3 is nan in micro-batch 2, so "
                                         "the gradient of shared (stage 0) is not finite"));
  }
}

TEST(EngineBatchTest, RejectsDifferentConfigurationsOnEveryRank) {
  const auto refused = [](const std::function<void(EngineConfig&)>& change) {
    std::string said;
    Mail mail;
    for (const auto& error : RunRanks(2, [&](const ProcessGroup& world) {
           Stage stage(world, mail);
           EngineConfig config = Config(0, 3);
           if (world.rank() == 1) change(config);
           auto net = stage.MakeNet();
           EngineCore core(config, *net, stage.Ranks(), Passes::kBatches);
         })) {
      EXPECT_TRUE(said.empty() || said == TextOf(error)) << TextOf(error);
      said = TextOf(error);
    }
    return said;
  };
  EXPECT_THAT(refused([](EngineConfig& config) { config.batch.accumulation_steps = 4; }),
              HasSubstr("differ in gradient_accumulation_steps (rank 0: 3; rank 1: 4)"));
  EXPECT_THAT(refused([](EngineConfig& config) {
                config.pipeline.schedule = PipelineScheduleType::kGpipe;
              }),
              HasSubstr("differ in pipeline.schedule (rank 0: \"1f1b\"; rank 1: \"gpipe\")"));
  EXPECT_THAT(refused([](EngineConfig& config) { config.pipeline.stages = 2; }),
              HasSubstr("differ in pipeline.stages (rank 0: 1; rank 1: 2)"));
  EXPECT_THAT(refused([](EngineConfig& config) { config.precision.model = Dtype::kBFloat16; }),
              HasSubstr("differ in precision.model (rank 0: \"fp32\"; rank 1: \"bf16\")"));
  EXPECT_THAT(refused([](EngineConfig& config) { config.zero.stage = 2; }),
              HasSubstr("differ in zero_optimization.stage (rank 0: 0; rank 1: 2)"));
}

TEST(EngineBatchTest, RejectsDifferentModelsOfOneStageOnAllRanks) {
  for (const int zero : {0, 1}) {
    Mail mail;
    for (const auto& error : RunRanks(4, [&](const ProcessGroup& world) {
           Stage stage(world, mail);
           auto net = stage.MakeNet();
           if (world.rank() == 3) net->register_parameter("more", at::ones({2}));
           EngineCore core(Config(zero, 3), *net, stage.Ranks(), Passes::kBatches);
         })) {
      EXPECT_THAT(TextOf(error), AllOf(HasSubstr("pipeline stage 1: the ranks' models differ"),
                                       HasSubstr("rank 3: more Float [2]")));
    }
  }
}

TEST(EngineBatchTest, RejectsUntiedParameterOfTwoStages) {
  Mail mail;
  for (const auto& error : RunRanks(2, [&](const ProcessGroup& world) {
         Stage stage(world, mail);
         auto net = stage.MakeNet();
         EngineCore core(Config(0, 3), *net, stage.Ranks(/*tied=*/false), Passes::kBatches);
       })) {
    EXPECT_THAT(TextOf(error), HasSubstr("stages 0 and 1 of the pipeline both train shared"));
  }
}

TEST(EngineBatchTest, AcceptsParameterGroupOfAnotherStage) {
  for (const bool known : {true, false}) {
    Mail mail;
    for (const auto& error : RunRanks(2, [&](const ProcessGroup& world) {
           Stage stage(world, mail);
           EngineConfig config = Config(1, 3);
           config.optimizer->groups = {{.names = {known ? "second.*" : "third.*"},
                                        .max_dims = {},
                                        .lr = 0.1,
                                        .weight_decay = {}}};
           auto net = stage.MakeNet();
           EngineCore core(config, *net, stage.Ranks(), Passes::kBatches);
           stage.Train(core, *net, true);
         })) {
      if (known) {
        EXPECT_EQ(TextOf(error), "");
      } else {
        EXPECT_THAT(TextOf(error), HasSubstr("matches no parameter"));
      }
    }
  }
}

// Stage 0 consists of functions only, so it has no parameters.
TEST(EngineBatchTest, AcceptsStageWithoutParameters) {
  for (const int zero : {0, 1, 3}) {
    Mail mail;
    for (const auto& error : RunRanks(2, [&](const ProcessGroup& world) {
           Stage stage(world, mail);
           torch::nn::Module none;
           torch::nn::Linear linear(5, 3);
           torch::nn::Module& module = stage.is_last() ? *linear : none;
           EngineCore core(Config(zero, 1), module, stage.Ranks(/*tied=*/false), Passes::kBatches);
           EngineBatch batch(core);
           batch.Begin(true);
           if (stage.is_last()) {
             batch.BeforeBackward(true);
             batch.Root(CrossEntropy(linear(Inputs(0, 0)), Targets())).backward();
             batch.AfterBackward();
           }
           batch.End();
           batch.Step();
           EXPECT_GT(core.grad_norm(), 0);
           EXPECT_EQ(core.ModelState().size(), stage.is_last() ? 2u : 0u);
         })) {
      EXPECT_EQ(TextOf(error), "") << "ZeRO " << zero;
    }
    for (const auto& error : RunRanks(2, [&](const ProcessGroup& world) {
           Stage stage(world, mail);
           torch::nn::Module none;
           EngineCore core(Config(zero, 1), none, stage.Ranks(/*tied=*/false), Passes::kBatches);
         })) {
      EXPECT_THAT(TextOf(error), HasSubstr("there is nothing to train"));
    }
  }
}

TEST(EngineBatchTest, RejectsCallsOfOrdinaryEngine) {
  Mail mail;
  for (const auto& error : RunRanks(2, [&](const ProcessGroup& world) {
         Stage stage(world, mail);
         auto net = stage.MakeNet();
         EngineCore core(Config(0, 1), *net, stage.Ranks(), Passes::kBatches);
         core.BeforeForward();
       })) {
    EXPECT_THAT(TextOf(error), HasSubstr("TrainBatch"));
  }
}

// Collects the whole tensors of a run, by name, from the parts of its ranks.
class WholeState {
 public:
  void Add(const EngineCore& core) {
    const std::lock_guard lock(mutex_);
    for (const auto& state : {core.ModelState(), core.OptimizerState()}) {
      for (const TensorPart& part : state) {
        if (part.rank0_authoritative && core.ranks().data().rank() != 0) continue;
        at::Tensor& whole = tensors_[part.name];
        if (!whole.defined()) whole = at::full(part.shape, std::nan(""), at::kDouble);
        PutPart(part.tensor, part.shard, whole.view(-1));
      }
    }
  }
  const std::map<std::string, at::Tensor>& tensors() const { return tensors_; }

 private:
  std::mutex mutex_;
  std::map<std::string, at::Tensor> tensors_;
};

// A layout of the ranks. A layout of one stage trains with the ordinary engine.
struct Layout {
  int stages, replicas, zero;
  std::string Name() const {
    return std::to_string(stages) + " x " + std::to_string(replicas) + ", ZeRO " +
           std::to_string(zero);
  }
};

// State and losses of a run, from RunLayout. It loads the checkpoint in `dir` if there is one,
// trains `steps` steps, and saves a checkpoint if `steps` is not 0.
struct Trained {
  std::map<std::string, at::Tensor> state;
  std::vector<double> losses;
};
Trained RunLayout(const Layout& layout, const std::string& dir, int steps) {
  WholeState whole;
  Trained result;
  std::mutex mutex;
  Mail mail;
  const auto finish = [&](EngineCore& core, const std::vector<double>& losses) {
    if (steps > 0) core.SaveCheckpoint(dir);
    whole.Add(core);
    const std::lock_guard lock(mutex);
    result.losses = losses;
  };
  for (const auto& error :
       RunRanks(layout.stages * layout.replicas, [&](const ProcessGroup& world) {
         std::vector<double> losses;
         if (layout.stages == 1) {
           EngineConfig config = Config(layout.zero, 2);
           auto engine = Initialize(config, std::make_shared<Net>(true, true), world);
           engine.LoadCheckpoint(dir);
           const int64_t share = kSamples / layout.replicas;
           for (int i = 0; i < steps; ++i) {
             std::vector<double> loss = {TrainWhole(engine, share, share * world.rank())};
             world.AllReduceSum(loss);
             losses.push_back(loss[0] / layout.replicas);
           }
           finish(engine.core(), losses);
           return;
         }
         Stage stage(world, mail);
         auto net = stage.MakeNet();
         EngineCore core(Config(layout.zero, 2), *net, stage.Ranks(), Passes::kBatches);
         core.LoadCheckpoint(dir);
         for (int i = 0; i < steps; ++i) {
           std::vector<double> loss = {stage.Train(core, *net, true)};
           world.AllReduceSum(loss);
           losses.push_back(loss[0] / (2 * layout.replicas));
         }
         finish(core, losses);
       })) {
    EXPECT_EQ(TextOf(error), "") << layout.Name();
  }
  result.state = whole.tensors();
  return result;
}

TEST(EngineBatchTest, LoadsCheckpointsOfAnyLayoutOnAnyOther) {
  const std::vector<Layout> layouts = {{2, 2, 1}, {1, 1, 0}, {2, 1, 3}, {1, 2, 2},
                                       {2, 2, 3}, {2, 2, 0}, {1, 2, 3}, {2, 1, 2}};
  const TempDir reference;
  const Trained wanted = RunLayout({1, 1, 0}, reference.path(), static_cast<int>(layouts.size()));
  // Each layout continues from the checkpoint of the previous layout.
  const TempDir folder;
  std::map<std::string, at::Tensor> before;
  for (size_t i = 0; i < layouts.size(); ++i) {
    if (i > 0) {
      const Trained loaded = RunLayout(layouts[i], folder.path(), 0);
      ASSERT_EQ(loaded.state.size(), before.size()) << layouts[i].Name();
      for (const auto& [name, tensor] : before) {
        EXPECT_TRUE(at::equal(loaded.state.at(name), tensor)) << layouts[i].Name() << ": " << name;
      }
    }
    const Trained trained = RunLayout(layouts[i], folder.path(), 1);
    ASSERT_EQ(trained.losses.size(), 1u);
    EXPECT_NEAR(trained.losses[0], wanted.losses[i], 1e-6) << layouts[i].Name();
    before = trained.state;
  }
  EXPECT_EQ(before.size(), wanted.state.size());
}

}  // namespace
}  // namespace dslaunch::engine_batch_test
