#include <ATen/ATen.h>

#include <utility>

#include "trainer/program/step_seed.h"
#include "trainer/program/trainee.h"

namespace dslaunch {
namespace {

class WholeTrainee : public Trainee {
 public:
  WholeTrainee(const EngineConfig& config, const std::shared_ptr<Model>& model,
               const ProcessGroup& group, InitRecording* deferred)
      : group_(group),
        engine_(Initialize(
            config, model, group,
            [model](const at::Tensor& output, const at::Tensor& target) {
              return model->Loss(output, target);
            },
            deferred)) {}

  EngineCore& core() override { return engine_.core(); }
  const Model& model() const override { return engine_.model(); }
  const torch::nn::Module& module() const override { return engine_.model(); }
  int64_t total_parameters() const override {
    int64_t elements = 0;
    for (const at::Tensor& parameter : engine_.model().parameters()) elements += parameter.numel();
    return elements;
  }
  void SetTrain(bool on) override { engine_.core().SetTrain(on); }
  const ProcessGroup& replicas() const override { return group_; }
  bool counts() const override { return true; }

  double Train(const Step& step, const std::function<Batch()>& next) override {
    const int64_t parts = engine_.core().accumulation_steps();
    double sum = 0;
    for (int64_t part = 0; part < parts; ++part) {
      const Batch batch = next();
      at::manual_seed(MicroBatchSeed(step.seed, step.number, part, group_.rank()));
      const at::Tensor loss = Loss(step, batch, sum);
      {
        const Phase phase("backward", step.times->backward);
        engine_.Backward(loss, /*scale_by_steps=*/!step.target_weight);
      }
      const Phase phase("update", step.times->update);
      engine_.Step();
    }
    return sum;
  }

  at::Tensor Forward(const at::Tensor& inputs) override {
    const at::NoGradGuard no_grad;
    return engine_.Forward(inputs);
  }

 private:
  // Of a micro-batch; adds its share of the step's to `sum`.
  at::Tensor Loss(const Step& step, const Batch& batch, double& sum) {
    const Phase phase("forward", step.times->forward);
    const at::Tensor output = engine_.Forward(batch.inputs);
    at::Tensor loss;
    if (step.target_weight) {
      const AutocastScope autocast = engine_.core().Autocast();
      loss = engine_.model().Loss(output, batch.targets, at::Reduction::Sum) * *step.target_weight;
    } else {
      loss = engine_.Loss(output, batch.targets);
    }
    sum += loss.item<double>() /
           (step.target_weight ? 1.0 : static_cast<double>(engine_.core().accumulation_steps()));
    return loss;
  }

  const ProcessGroup& group_;
  Engine<Model> engine_;
};

}  // namespace

std::unique_ptr<Trainee> MakeWholeTrainee(const EngineConfig& config, std::shared_ptr<Model> model,
                                          const ProcessGroup& group, InitRecording* deferred) {
  return std::make_unique<WholeTrainee>(config, model, group, deferred);
}

}  // namespace dslaunch
