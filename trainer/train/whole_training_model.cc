#include <ATen/ATen.h>

#include <map>
#include <optional>
#include <string>
#include <utility>

#include "trainer/base/seed.h"
#include "trainer/config/engine_config.h"
#include "trainer/device/graphed_step.h"
#include "trainer/engine/layer_runner.h"
#include "trainer/nn/seed_generators.h"
#include "trainer/nn/tensor_parallel/divided_module.h"
#include "trainer/parallel/model_states.h"
#include "trainer/parallel/module_tensors.h"
#include "trainer/train/training_model.h"

namespace dslaunch {
namespace {

// Runs the model with a seed for each layer and with recomputation. The engine runs this module
// instead of the model.
class SeededForward : public torch::nn::Module {
 public:
  SeededForward(std::shared_ptr<Model> model, int64_t parts)
      : model_(std::move(model)), recomputes_(parts > 0), runner_(*model_, parts) {}

  // Returns the model's output. In training, each of the model's Layers() gets a seed derived from
  // `seed`.
  at::Tensor forward(const at::Tensor& inputs, std::optional<uint64_t> seed) {
    const bool trains = model_->is_training() && at::GradMode::is_enabled();
    const bool by_layers = trains && runner_.knows_layers() && (seed || recomputes_);
    return by_layers ? runner_.Forward(inputs, seed) : model_->forward(inputs);
  }

 private:
  std::shared_ptr<Model> model_;
  bool recomputes_;
  LayerRunner runner_;
};

class WholeTrainingModel : public TrainingModel {
 public:
  WholeTrainingModel(const EngineConfig& config, const std::shared_ptr<Model>& model,
                     const std::shared_ptr<MeshGroups>& ranks, InitRecording* deferred)
      : group_(ranks->world()),
        model_(model),
        engine_(EngineCore(config, *model, ranks, Passes::kMicroBatches, deferred),
                std::make_shared<SeededForward>(model, config.number_checkpoints),
                [model](const at::Tensor& output, const at::Tensor& target) {
                  return model->Loss(output, target);
                }),
        timed_(config.cuda_graph ? c10::Device(c10::kCPU) : group_.device()) {
    if (config.cuda_graph) graphed_.emplace(*group_.rank_device().accelerator);
  }

  EngineCore& core() override { return engine_.core(); }
  const Model& model() const override { return *model_; }
  const torch::nn::Module& module() const override { return *model_; }
  int64_t total_parameters() const override { return CountWholeParameters(*model_); }

  at::Tensor Train(const Step& step, const std::function<Batch()>& next) override {
    if (graphed_) return TrainGraphed(step, next);
    const int64_t parts = engine_.core().accumulation_steps();
    at::Tensor sum = at::zeros({}, at::TensorOptions(group_.device()).dtype(at::kDouble));
    for (int64_t part = 0; part < parts; ++part) {
      const Batch batch = next();
      const uint64_t seed = MicroBatchSeed(step.seed, step.number, part, replicas().rank());
      // Seeds the layers of models whose layers are not known.
      at::manual_seed(seed);
      sum += TrainMicroBatch(batch, step, seed);
    }
    return sum;
  }

  at::Tensor Forward(const at::Tensor& inputs) override {
    const at::NoGradGuard no_grad;
    return engine_.Forward(inputs.to(group_.device()), std::optional<uint64_t>());
  }

 private:
  // Runs backward pass and update for a micro-batch after its forward pass. Returns its part of the
  // step's loss (see Train).
  at::Tensor TrainMicroBatch(const Batch& batch, const Step& step, std::optional<uint64_t> seed) {
    const at::Tensor loss = Loss(step, batch, seed);
    {
      const Phase phase("backward", step.times->backward, timed_);
      engine_.Backward(loss, {.scale_by_steps = !step.target_weight});
    }
    const Phase phase("update", step.times->update, timed_);
    engine_.Step();
    const at::Tensor part = loss.detach().to(at::kDouble);
    return step.target_weight ? part : part / engine_.core().accumulation_steps();
  }

  at::Tensor Loss(const Step& step, const Batch& batch, std::optional<uint64_t> seed) {
    const Phase phase("forward", step.times->forward, timed_);
    const at::Tensor output = engine_.Forward(batch.inputs, seed);
    if (seed) SeedGenerators(group_.device(), LayerSeed(*seed, kLossLayer));
    if (!step.target_weight) return engine_.Loss(output, batch.targets);
    const AutocastScope autocast = engine_.core().Autocast();
    return model_->Loss(output, batch.targets, at::Reduction::Sum) * *step.target_weight;
  }

  // Makes a step with a recorded graph. A recorded graph cannot contain seeds, so the seed of the
  // first micro-batch is used for all layers of the whole step.
  at::Tensor TrainGraphed(const Step& step, const std::function<Batch()>& next) {
    std::vector<at::Tensor> inputs;
    for (int64_t part = 0; part < engine_.core().accumulation_steps(); ++part) {
      const Batch batch = next();
      inputs.insert(inputs.end(), {batch.inputs, batch.targets});
    }
    at::manual_seed(MicroBatchSeed(step.seed, step.number, /*part=*/0, replicas().rank()));
    engine_.core().PrepareStep();
    const GraphedStep::Outcome outcome =
        graphed_->Run(inputs, [&](const std::vector<at::Tensor>& given) {
          at::Tensor sum = at::zeros({}, given[0].options().dtype(at::kDouble));
          for (size_t i = 0; i < given.size(); i += 2) {
            sum += TrainMicroBatch({given[i], given[i + 1]}, step, std::nullopt);
          }
          return std::vector<at::Tensor>{sum, engine_.core().grad_norm_on_device()};
        });
    if (outcome.replayed) engine_.core().StepReplayed(outcome.results[1]);
    return outcome.results[0];
  }

  const ProcessGroup& group_;
  const std::shared_ptr<Model> model_;
  Engine<SeededForward> engine_;
  const c10::Device timed_;  // device whose phases are timed; a recorded step has no times
  std::optional<GraphedStep> graphed_;
};

}  // namespace

std::unique_ptr<TrainingModel> MakeWholeTrainingModel(const EngineConfig& config,
                                                      std::shared_ptr<Model> model,
                                                      std::shared_ptr<MeshGroups> ranks,
                                                      InitRecording* deferred) {
  ranks->SetCut({.divided = CutsIn(*model)});
  return std::make_unique<WholeTrainingModel>(config, model, ranks, deferred);
}

int64_t CountWholeParameters(const Model& model) {
  const std::map<std::string, ParameterCut> cuts = CutsIn(model);
  int64_t elements = 0;
  for (const NamedTensor& item : Unique(model.named_parameters())) {
    const auto cut = cuts.find(item.name);
    elements += cut == cuts.end() ? item.tensor.numel() : c10::multiply_integers(cut->second.shape);
  }
  return elements;
}

}  // namespace dslaunch
