#include "trainer/device/graphed_step.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>

#include <limits>
#include <optional>

#include "proto/contract/worker_env.h"
#include "tests/support/cuda/recorded_graph.h"
#include "tests/unit/trainer/expect_refused.h"
#include "tests/unit/trainer/world_of_one.h"
#include "trainer/base/seed.h"
#include "trainer/base/train_error.h"
#include "trainer/config/engine_config.h"
#include "trainer/families/gpt2/gpt2_config.h"
#include "trainer/families/make_model.h"
#include "trainer/mesh/mesh_groups.h"
#include "trainer/train/step.h"
#include "trainer/train/training_model.h"

namespace dslaunch {
namespace {

using testing::HasSubstr;

constexpr int kWarmUp = kGraphWarmUpSteps;

TEST(GraphedStep, RunsThenRecordsThenReplays) {
  RecordingAccelerator accelerator;
  GraphedStep step(accelerator);
  at::Tensor total = at::zeros({}, at::kDouble);
  int calls = 0;
  const auto add = [&](const std::vector<at::Tensor>& inputs) {
    ++calls;
    total += inputs[0].sum();
    return std::vector<at::Tensor>{total};
  };
  std::vector<at::Tensor> seen;
  for (int i = 1; i <= kWarmUp + 3; ++i) {
    const auto outcome = step.Run({at::full({2}, i, at::kDouble)}, add);
    EXPECT_EQ(outcome.replayed, i > kWarmUp + 1) << i;
    EXPECT_EQ(outcome.results[0].item<double>(), i * (i + 1)) << "every step counts once";
    seen.push_back(outcome.results[0]);
  }
  EXPECT_EQ(calls, kWarmUp + 1);
  EXPECT_EQ(accelerator.recorded(), 1);
  EXPECT_EQ(accelerator.replayed(), 3);
  const int recorded = kWarmUp + 1;
  EXPECT_EQ(seen[kWarmUp].item<double>(), recorded * (recorded + 1)) << "replays leave it alone";
}

TEST(GraphedStep, RecordsNewGraphOnlyAfterRepeatedShapes) {
  RecordingAccelerator accelerator;
  GraphedStep step(accelerator);
  const auto sum = [](const std::vector<at::Tensor>& inputs) {
    return std::vector<at::Tensor>{inputs[0].sum()};
  };
  const auto run = [&](int64_t size) {
    const auto outcome = step.Run({at::ones({size})}, sum);
    EXPECT_EQ(outcome.results[0].item<double>(), static_cast<double>(size));
    return outcome.replayed;
  };
  for (int i = 0; i <= kWarmUp; ++i) EXPECT_FALSE(run(4));
  EXPECT_TRUE(run(4));
  EXPECT_FALSE(run(3)) << "the last batch of an epoch";
  EXPECT_TRUE(run(4));
  for (int i = 0; i < kWarmUp; ++i) EXPECT_FALSE(run(3));
  EXPECT_EQ(accelerator.recorded(), 2);
  EXPECT_TRUE(run(3));
  EXPECT_FALSE(run(4));
}

TEST(GraphedStep, RejectsStepThatWaitsForDevice) {
  RecordingAccelerator accelerator;
  GraphedStep step(accelerator);
  const auto reads = [](const std::vector<at::Tensor>& inputs) {
    return std::vector<at::Tensor>{inputs[0] * inputs[0].sum().item<double>()};
  };
  for (int i = 0; i < kWarmUp; ++i) step.Run({at::ones({4})}, reads);
  ExpectRefused([&] { step.Run({at::ones({4})}, reads); }, ExitCode::kBadInput,
                testing::AllOf(HasSubstr("engine.cuda_graph"),
                               HasSubstr("not permitted when stream is capturing")));
}

// Results of training, for comparison of graphed steps with the same steps run without a graph. A
// graph draws a step's random numbers from the first micro-batch's seed, so the steps without a
// graph do the same.
struct Trained {
  std::vector<double> losses, norms, lrs;
  std::vector<at::Tensor> weights;
  EngineProgress progress;
  int replayed = 0;
};

constexpr int kSteps = kWarmUp + 6;
constexpr int kOddStep = kWarmUp + 3;  // counted from 0; this step has a smaller batch

Trained TrainGpt2(const std::string& engine_json, double dropout, bool graph) {
  WorkerEnv env;
  env.master_addr = "127.0.0.1";
  RecordingAccelerator accelerator;
  const ProcessGroup group(env, {c10::kCPU, &accelerator});
  EngineConfig config = ParseEngineConfig(engine_json, "test", 1);
  config.cuda_graph = graph;
  at::manual_seed(5);
  const Gpt2Config gpt2{.vocab_size = 17,
                        .n_positions = 6,
                        .n_embd = 8,
                        .n_layer = 1,
                        .n_head = 2,
                        .n_inner = {},
                        .resid_pdrop = dropout,
                        .embd_pdrop = dropout,
                        .attn_pdrop = 0};
  const std::shared_ptr<Model> model = MakeModel(gpt2, {6});
  std::unique_ptr<TrainingModel> training_model;
  std::optional<Engine<Model>> by_hand;
  if (graph) {
    training_model =
        MakeWholeTrainingModel(config, model, std::make_shared<MeshGroups>(group), nullptr);
  } else {
    by_hand.emplace(Initialize(
        config, model, group,
        [model](const auto& output, const auto& target) { return model->Loss(output, target); }));
  }
  EngineCore& core = graph ? training_model->core() : by_hand->core();
  core.SetTrain(true);
  Trained trained;
  std::vector<StepOutcome> unread;
  int64_t batch = 0;
  StepTimes times;
  for (int step = 0; step < kSteps; ++step) {
    const auto next = [&] {
      const at::Tensor tokens = (at::arange(step == kOddStep ? 12 : 18) * (3 + batch++)) % 17;
      return Batch{tokens.view({-1, 6}), (tokens + 1).fmod(17).view({-1, 6})};
    };
    if (graph) {
      const at::Tensor loss =
          training_model->Train({.seed = 1, .number = step, .times = &times}, next);
      unread.push_back({.info = {}, .loss = loss, .grad_norm = core.grad_norm_on_device().clone()});
    } else {
      at::manual_seed(MicroBatchSeed(1, step, 0, 0));
      double sum = 0;
      for (int64_t part = 0; part < core.accumulation_steps(); ++part) {
        const Batch inputs = next();
        const at::Tensor loss = by_hand->Loss(by_hand->Forward(inputs.inputs), inputs.targets);
        by_hand->Backward(loss);
        by_hand->Step();
        sum += loss.item<double>() / static_cast<double>(core.accumulation_steps());
      }
      trained.losses.push_back(sum);
      trained.norms.push_back(core.grad_norm());
    }
    trained.lrs.push_back(core.step_lr());
  }
  if (graph) {
    for (const StepInfo& info : ReadSteps(*training_model, unread)) {
      trained.losses.push_back(info.loss);
      trained.norms.push_back(info.grad_norm);
    }
  }
  for (const TensorPart& part : core.ModelState()) {
    trained.weights.push_back(part.tensor.detach().clone());
  }
  trained.progress = core.progress();
  trained.replayed = accelerator.replayed();
  return trained;
}

void ExpectSame(const std::string& engine_json, double dropout) {
  const Trained plain = TrainGpt2(engine_json, dropout, /*graph=*/false);
  const Trained graphed = TrainGpt2(engine_json, dropout, /*graph=*/true);
  EXPECT_EQ(plain.replayed, 0);
  EXPECT_EQ(graphed.replayed, kSteps - kWarmUp - 1) << "all but the odd step, after the warm-up";
  EXPECT_EQ(graphed.losses, plain.losses);
  EXPECT_EQ(graphed.norms, plain.norms);
  EXPECT_EQ(graphed.lrs, plain.lrs);
  EXPECT_EQ(graphed.progress.steps, plain.progress.steps);
  EXPECT_EQ(graphed.progress.updates, plain.progress.updates);
  ASSERT_EQ(graphed.weights.size(), plain.weights.size());
  for (size_t i = 0; i < plain.weights.size(); ++i) {
    EXPECT_TRUE(at::equal(graphed.weights[i], plain.weights[i])) << "weight " << i;
  }
}

// The learning rates are exact in fp32, because the graph's kernel reads them from memory as fp32.
constexpr char kStep[] =
    R"(, "gradient_clipping": 0.5,
        "optimizer": {"type": "AdamW", "params": {"lr": 0.0078125, "weight_decay": 0.125}},
        "scheduler": {"type": "WarmupLR", "params": {"warmup_min_lr": 0,
          "warmup_max_lr": 0.0078125, "warmup_num_steps": 16, "warmup_type": "linear"}}})";

TEST(GraphedTraining, GivesSameBitsAsWithoutGraph) {
  ExpectSame(std::string(R"({"train_micro_batch_size_per_gpu": 3)") + kStep, 0);
}

TEST(GraphedTraining, GivesSameBitsWithDropoutAndBf16) {
  ExpectSame(
      std::string(R"({"train_micro_batch_size_per_gpu": 3, "bf16": {"enabled": true})") + kStep,
      0.25);
}

TEST(GraphedTraining, GivesSameBitsWithAccumulationAndZero2) {
  ExpectSame(std::string(R"({"train_micro_batch_size_per_gpu": 3,
                             "gradient_accumulation_steps": 2, "bf16": {"enabled": true},
                             "zero_optimization": {"stage": 2})") +
                 kStep,
             0);
}

// One batch overflows, so its update is skipped. The host detects this only when it reads the norm.
TEST(GraphedTraining, SkippedUpdateChangesNothing) {
  const auto train = [](bool graph) {
    auto model = std::make_shared<torch::nn::LinearImpl>(2, 2);
    {
      const at::NoGradGuard no_grad;
      for (at::Tensor parameter : model->parameters()) parameter.fill_(0.25);
    }
    EngineConfig config = ParseEngineConfig(
        std::string(R"({"train_batch_size": 1, "bf16": {"enabled": true})") + kStep, "test", 1);
    config.cuda_graph = graph;
    auto engine = Initialize(config, model, World());
    std::vector<std::string> reasons;
    for (int step = 0; step < 5; ++step) {
      engine.core().PrepareStep();
      const double value = step == 2 ? std::numeric_limits<double>::infinity() : step + 1;
      engine.Backward(engine.Forward(at::full({1, 2}, value)).sum());
      engine.Step();
      const std::string seen = engine.core().ObserveGradNorm(engine.core().grad_norm());
      reasons.push_back(graph ? seen : engine.core().skip_reason());
    }
    EXPECT_EQ(reasons[1], "");
    EXPECT_THAT(reasons[2], HasSubstr("the update is skipped"));
    EXPECT_EQ(reasons[3], "");
    const EngineProgress progress = engine.core().progress();
    EXPECT_EQ(progress.steps, 5);
    EXPECT_EQ(progress.skipped, 1);
    EXPECT_EQ(progress.updates, 4);
    std::vector<at::Tensor> state;
    for (const TensorPart& part : engine.core().ModelState()) state.push_back(part.tensor.clone());
    for (const TensorPart& part : engine.core().OptimizerState()) {
      state.push_back(part.tensor.clone());
    }
    return state;
  };
  const std::vector<at::Tensor> plain = train(false), unseen = train(true);
  ASSERT_EQ(plain.size(), unseen.size());
  for (size_t i = 0; i < plain.size(); ++i) EXPECT_TRUE(at::equal(plain[i], unseen[i])) << i;
}

}  // namespace
}  // namespace dslaunch
