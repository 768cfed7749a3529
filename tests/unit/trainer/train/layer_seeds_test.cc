// Tests the random numbers of a training step: a layer draws the same numbers in every layout.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>

#include "tests/unit/trainer/world_of_one.h"
#include "trainer/base/seed.h"
#include "trainer/config/engine_config.h"
#include "trainer/engine/layer_runner.h"
#include "trainer/mesh/mesh_groups.h"
#include "trainer/train/training_model.h"

namespace dslaunch::layer_seeds_test {
namespace {

constexpr int kWidth = 6;
constexpr uint64_t kSeed = 11;  // seed of the run

// A model whose layers, own forward pass and loss all draw random numbers.
struct Dropping : Model {
  Dropping() {
    for (int i = 0; i < 3; ++i) {
      layers.push_back(
          register_module("layer" + std::to_string(i), torch::nn::Linear(kWidth, kWidth)));
    }
  }
  at::Tensor Run(torch::nn::Linear& layer, const at::Tensor& x) {
    return at::dropout(layer(x).tanh(), 0.5, is_training());
  }
  at::Tensor forward(const at::Tensor& x) override {
    at::Tensor y = x;
    for (torch::nn::Linear& layer : layers) y = Run(layer, y);
    return y;
  }
  std::vector<ModelLayer> Layers() override {
    std::vector<ModelLayer> all;
    for (torch::nn::Linear& layer : layers) {
      all.push_back({layer->name(), {layer.ptr()}, [this, layer](const at::Tensor& x) mutable {
                       return Run(layer, x);
                     }});
    }
    return all;
  }
  at::Tensor Loss(const at::Tensor& output, const at::Tensor& targets,
                  int64_t reduction) const override {
    return Model::Loss(at::dropout(output, 0.5, is_training()), targets, reduction);
  }
  std::vector<torch::nn::Linear> layers;
};

Batch BatchOf(int64_t number) {
  const at::Tensor inputs = at::arange(4 * kWidth).view({4, kWidth}).to(at::kFloat);
  return {(inputs + static_cast<double>(number)).sin(), at::arange(4) % kWidth};
}

EngineConfig ConfigOf(const std::string& keys) {
  return ParseEngineConfig(
      R"({"train_batch_size": 8, "gradient_accumulation_steps": 2, "gradient_clipping": 0,
                               "optimizer": {"type": "SGD", "params": {"lr": 0.5}})" +
          keys + "}",
      "test", 1);
}

// Returns the loss of each step. `whole`: whether to train without the pipeline engine.
std::vector<double> Losses(const std::string& keys, bool whole) {
  const EngineConfig config = ConfigOf(keys);
  std::shared_ptr<Model> model;
  std::unique_ptr<TrainingModel> training_model;
  if (whole) {
    at::manual_seed(kSeed);
    model = std::make_shared<Dropping>();
    training_model =
        MakeWholeTrainingModel(config, model, std::make_shared<MeshGroups>(World()), nullptr);
  } else {
    InitRecording deferred = DeferInit(kSeed, [&] { model = std::make_shared<Dropping>(); });
    training_model = MakePipelineTrainingModel(config, model, std::move(deferred), {},
                                               std::make_shared<MeshGroups>(World()));
  }
  training_model->SetTrain(true);
  std::vector<double> losses;
  StepTimes times;
  int64_t batch = 0;
  for (int64_t step = 1; step <= 3; ++step) {
    at::rand({batch + 1});  // extra draws must not matter
    losses.push_back(training_model
                         ->Train({.seed = kSeed, .number = step, .times = &times},
                                 [&] { return BatchOf(batch++); })
                         .item<double>());
  }
  return losses;
}

// Computes the losses manually, with a seed before each layer and before the loss.
std::vector<double> ExpectedLosses() {
  at::manual_seed(kSeed);
  Dropping model;
  std::vector<double> losses;
  int64_t number = 0;
  for (int64_t step = 1; step <= 3; ++step) {
    double loss = 0;
    for (int64_t part = 0; part < 2; ++part) {
      const uint64_t seed = MicroBatchSeed(kSeed, step, part, 0);
      const Batch batch = BatchOf(number++);
      at::Tensor x = batch.inputs;
      for (size_t i = 0; i < model.layers.size(); ++i) {
        at::manual_seed(LayerSeed(seed, i));
        x = model.Run(model.layers[i], x);
      }
      at::manual_seed(LayerSeed(seed, kLossLayer));
      const at::Tensor result = model.Loss(x, batch.targets, at::Reduction::Mean) / 2;
      result.backward();
      loss += result.item<double>();
    }
    losses.push_back(loss);
    const at::NoGradGuard no_grad;
    for (at::Tensor parameter : model.parameters()) {
      parameter.sub_(parameter.grad() * 0.5);
      parameter.mutable_grad().reset();
    }
  }
  return losses;
}

TEST(LayerSeedsTest, DrawsTheSameInEveryLayout) {
  const std::vector<double> expected = ExpectedLosses();
  const auto expect = [&](const std::string& keys, bool whole) {
    const std::vector<double> losses = Losses(keys, whole);
    ASSERT_EQ(losses.size(), expected.size());
    for (size_t i = 0; i < losses.size(); ++i) {
      EXPECT_NEAR(losses[i], expected[i], 1e-6) << keys << ", step " << i + 1;
    }
  };
  expect("", true);
  for (const char* parts : {"1", "2", "3"}) {
    expect(std::string(R"(, "activation_checkpointing": {"number_checkpoints": )") + parts + "}",
           true);
  }
  for (const char* interval : {"1", "2"}) {
    expect(std::string(R"(, "pipeline": {"activation_checkpoint_interval": )") + interval + "}",
           false);
  }
}

TEST(LayerSeedsTest, DrawsDifferentNumbersPerLayer) {
  std::set<uint64_t> seeds;
  for (int64_t step = 1; step <= 5; ++step) {
    for (int64_t part = 0; part < 4; ++part) {
      for (size_t layer = 0; layer < 20; ++layer) {
        // The generator uses only 32 bits of a seed.
        seeds.insert(static_cast<uint32_t>(LayerSeed(MicroBatchSeed(7, step, part, 1), layer)));
      }
      seeds.insert(static_cast<uint32_t>(LayerSeed(MicroBatchSeed(7, step, part, 1), kLossLayer)));
    }
  }
  EXPECT_EQ(seeds.size(), 5u * 4 * 21);
}

}  // namespace
}  // namespace dslaunch::layer_seeds_test
