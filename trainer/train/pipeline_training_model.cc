#include <ATen/ATen.h>

#include <deque>
#include <utility>

#include "trainer/base/train_error.h"
#include "trainer/pipeline/pipeline_engine.h"
#include "trainer/pipeline/stage.h"
#include "trainer/train/training_model.h"

namespace dslaunch {
namespace {

class PipelineTrainingModel : public TrainingModel {
 public:
  PipelineTrainingModel(const EngineConfig& config, const std::shared_ptr<Model>& model,
                        InitRecording deferred, const std::vector<double>& layer_costs,
                        const std::shared_ptr<MeshGroups>& ranks)
      : model_(model),
        total_parameters_(CountWholeParameters(*model)),
        engine_(MakePipelineEngine(
            CutModel(model, std::move(deferred), config.pipeline, ranks->place().stage,
                     layer_costs),
            [this](const Tensors& outputs, const Tensors& targets) {
              return Loss(outputs.at(0), targets.at(0));
            },
            config, ranks)) {}

  EngineCore& core() override { return engine_.core(); }
  const Model& model() const override { return *model_; }
  const torch::nn::Module& module() const override { return engine_.module(); }
  int64_t total_parameters() const override { return total_parameters_; }

  // Makes an optimizer step. Every stage reads the micro-batches, because every stage counts the
  // samples.
  at::Tensor Train(const Step& step, const std::function<Batch()>& next) override {
    target_weight_ = step.target_weight;
    std::deque<Batch> batches;
    for (int64_t i = 0; i < core().accumulation_steps(); ++i) batches.push_back(next());
    const Phase phase("batch", step.times->batch, replicas().device());
    const double loss = engine_.TrainBatch([&]() -> MicroBatch {
      const Batch batch = std::move(batches.front());
      batches.pop_front();
      return {{batch.inputs}, {batch.targets}};
    });
    return at::scalar_tensor(loss, at::kDouble);
  }

  at::Tensor Forward(const at::Tensor& inputs) override { return engine_.Infer({inputs}).at(0); }

 private:
  // Returns the loss of a micro-batch. The engine averages the result over the micro-batches, so a
  // weighted sum is multiplied by their number.
  at::Tensor Loss(const at::Tensor& output, const at::Tensor& target) const {
    if (!target_weight_) return model_->Loss(output, target);
    return model_->Loss(output, target, at::Reduction::Sum) *
           (*target_weight_ * static_cast<double>(engine_.core().accumulation_steps()));
  }

  std::shared_ptr<Model> model_;
  int64_t total_parameters_;
  // Factor of each target's loss in the current training step; nullopt if the mean is used.
  std::optional<double> target_weight_;
  PipelineEngine engine_;
};

}  // namespace

std::unique_ptr<TrainingModel> MakePipelineTrainingModel(const EngineConfig& config,
                                                         std::shared_ptr<Model> model,
                                                         InitRecording deferred,
                                                         const std::vector<double>& layer_costs,
                                                         std::shared_ptr<MeshGroups> ranks) {
  return std::make_unique<PipelineTrainingModel>(config, std::move(model), std::move(deferred),
                                                 layer_costs, ranks);
}

}  // namespace dslaunch
