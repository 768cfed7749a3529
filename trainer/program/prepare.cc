#include "trainer/program/prepare.h"

#include <ATen/ATen.h>
#include <torch/nn/modules/batchnorm.h>

#include "trainer/models/models.h"
#include "trainer/models/pretrained.h"

namespace dslaunch {
namespace {

bool IsBatchNorm(const torch::nn::Module& module) {
  return module.as<torch::nn::BatchNorm1d>() != nullptr ||
         module.as<torch::nn::BatchNorm2d>() != nullptr ||
         module.as<torch::nn::BatchNorm3d>() != nullptr;
}

}  // namespace

std::shared_ptr<Model> PrepareModel(const Recipe& recipe, const std::vector<int64_t>& input_shape) {
  if (recipe.run.deterministic) {
    at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/false);
    at::globalContext().setDeterministicCuDNN(true);
    at::globalContext().setBenchmarkCuDNN(false);
  }
  at::manual_seed(recipe.run.seed);
  std::shared_ptr<Model> model = MakeModel(recipe.model, input_shape);
  if (!recipe.run.init_weights.empty()) InitWeights(*model, recipe.run.init_weights);
  return model;
}

Engine<Model> PrepareEngine(const Recipe& recipe, const std::vector<int64_t>& input_shape,
                            const ProcessGroup& group, const Checkpointer* checkpointer) {
  const std::shared_ptr<Model> model = PrepareModel(recipe, input_shape);
  const auto loss = [model](const at::Tensor& output, const at::Tensor& target) {
    return model->Loss(output, target);
  };
  Engine<Model> engine = Initialize(recipe.engine, model, group, loss);
  if (checkpointer != nullptr) checkpointer->Load(engine.core());
  return engine;
}

ModelSizes SizesOf(const Model& model) {
  ModelSizes sizes;
  for (const at::Tensor& parameter : model.parameters()) {
    (parameter.requires_grad() ? sizes.trained : sizes.frozen) += parameter.numel();
  }
  for (const at::Tensor& buffer : model.buffers()) {
    if (buffer.is_floating_point()) {
      sizes.buffers += buffer.numel();
    } else {
      sizes.other_buffer_bytes += static_cast<int64_t>(buffer.nbytes());
    }
  }
  for (const std::shared_ptr<torch::nn::Module>& module : model.modules()) {
    if (!IsBatchNorm(*module)) continue;
    for (const at::Tensor& parameter : module->parameters(/*recurse=*/false)) {
      if (parameter.requires_grad()) sizes.batch_norm_trained += parameter.numel();
    }
    for (const at::Tensor& buffer : module->buffers(/*recurse=*/false)) {
      if (buffer.is_floating_point()) sizes.batch_norm_buffers += buffer.numel();
    }
  }
  return sizes;
}

}  // namespace dslaunch
