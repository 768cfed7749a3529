#include "trainer/program/prepare.h"

#include <ATen/ATen.h>

#include <map>
#include <string>
#include <unordered_set>

#include "trainer/engine/module_tensors.h"
#include "trainer/models/models.h"
#include "trainer/models/pretrained.h"
#include "trainer/precision/module_dtype.h"

namespace dslaunch {
namespace {

void UseDeterministicAlgorithms() {
  at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/false);
  at::globalContext().setDeterministicCuDNN(true);
  at::globalContext().setBenchmarkCuDNN(false);
}

// The model's weights as they would be had it been cast after it was given them.
void RoundToModel(Trainee& trainee) {
  const at::NoGradGuard no_grad;
  std::map<std::string, at::ScalarType> dtypes;
  for (const auto& parameter : trainee.model().named_parameters()) {
    dtypes.emplace(parameter.key(), parameter.value().scalar_type());
  }
  for (const TensorPart& part : trainee.core().ModelState()) {
    const auto dtype = dtypes.find(part.name);
    if (dtype != dtypes.end()) part.tensor.copy_(part.tensor.to(dtype->second));
  }
  trainee.core().WeightsChanged();
}

}  // namespace

DeferredModel DeferModel(const Recipe& recipe, const std::vector<int64_t>& input_shape) {
  DeferredModel result;
  result.recording =
      DeferInit(recipe.run.seed, [&] { result.model = MakeModel(recipe.model, input_shape); });
  return result;
}

std::unique_ptr<Trainee> PrepareTrainee(const Recipe& recipe,
                                        const std::vector<int64_t>& input_shape,
                                        const ProcessGroup& group,
                                        const Checkpointer* checkpointer) {
  if (recipe.run.deterministic) UseDeterministicAlgorithms();
  const std::string& weights = recipe.run.init_weights;
  std::unique_ptr<Trainee> trainee;
  if (recipe.engine.zero.stage == 3) {
    DeferredModel deferred = DeferModel(recipe, input_shape);
    trainee = MakeWholeTrainee(recipe.engine, deferred.model, group, &deferred.recording);
    if (!weights.empty()) {
      InitWeights(trainee->model(), trainee->core().ModelState(), weights);
      RoundToModel(*trainee);
    }
  } else {
    at::manual_seed(recipe.run.seed);
    const std::shared_ptr<Model> model = MakeModel(recipe.model, input_shape);
    if (!weights.empty()) InitWeights(*model, weights);
    trainee = MakeWholeTrainee(recipe.engine, model, group, nullptr);
  }
  if (checkpointer != nullptr) checkpointer->Load(trainee->core());
  return trainee;
}

ModelSizes SizesOf(const Model& model) {
  ModelSizes sizes;
  std::unordered_set<const at::TensorImpl*> norms;
  for (const std::shared_ptr<torch::nn::Module>& module : model.modules()) {
    if (!IsBatchNorm(*module)) continue;
    for (const at::Tensor& parameter : module->parameters(/*recurse=*/false)) {
      norms.insert(parameter.unsafeGetTensorImpl());
    }
  }
  for (const auto& [name, parameter] : Unique(model.named_parameters())) {
    sizes.shardable.push_back({.name = name,
                               .elements = parameter.numel(),
                               .dtype = norms.contains(parameter.unsafeGetTensorImpl()) ? 1 : 0,
                               .trained = parameter.requires_grad()});
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
