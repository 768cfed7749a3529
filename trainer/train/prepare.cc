#include "trainer/train/prepare.h"

#include <ATen/ATen.h>

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <unordered_set>
#include <utility>

#include "trainer/base/by_rank.h"
#include "trainer/base/train_error.h"
#include "trainer/comm/gather_texts.h"
#include "trainer/comm/rank_failure.h"
#include "trainer/device/accelerator.h"
#include "trainer/families/make_model.h"
#include "trainer/nn/lora/lora.h"
#include "trainer/nn/module_dtype.h"
#include "trainer/parallel/module_tensors.h"
#include "trainer/pipeline/stage.h"
#include "trainer/train/pass_memory.h"
#include "trainer/weights/adapter_files.h"
#include "trainer/weights/pretrained.h"

namespace dslaunch {
namespace {

void UseDeterministicAlgorithms() {
  at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/false);
  at::globalContext().setDeterministicCuDNN(true);
  at::globalContext().setBenchmarkCuDNN(false);
}

// Sets whether fp32 operations may use TF32, because LibTorch's default allows TF32 for
// convolutions only.
void SetTf32(bool on) {
  at::globalContext().setAllowTF32CuBLAS(on);
  at::globalContext().setAllowTF32CuDNN(on);
}

// Returns the shape of one sample of `batch`, without the batch dimension.
std::vector<int64_t> ShapeOf(const at::Tensor& batch) { return batch.sizes().slice(1).vec(); }

// Returns rank 0's layer costs on all ranks, because each rank would measure different costs.
// Collective.
std::vector<double> AgreedCosts(const Recipe& recipe, const at::Tensor& sample,
                                const ProcessGroup& group) {
  std::vector<double> own;
  const std::string problem = FailureOf([&] {
    if (group.rank() == 0) own = LayerCosts(recipe, sample, group.device());
  });
  ThrowFirstFailure(GatherTexts(group, problem));
  at::Tensor count = at::tensor(static_cast<int64_t>(own.size()), at::kLong);
  group.Broadcast(count, 0);
  own.resize(static_cast<size_t>(count.item<int64_t>()));
  if (own.empty()) return own;
  at::Tensor costs = at::tensor(own, at::kDouble);
  group.Broadcast(costs, 0);
  return {costs.const_data_ptr<double>(), costs.const_data_ptr<double>() + own.size()};
}

// Throws if the ranks use different kinds of devices, or if CPUs do not support the configuration.
// Collective.
void CheckDevice(const EngineConfig& engine, const ProcessGroup& group) {
  const std::vector<std::string> kinds =
      GatherTexts(group, c10::DeviceTypeName(group.device().type(), /*lower_case=*/true));
  if (GroupRanks(kinds).size() > 1) {
    throw TrainError(
        ExitCode::kUnavailable,
        "the ranks do not compute on the same kind of device (" +
            ByRank(
                kinds, [](const std::string& kind) { return kind; }, group.job_ranks()) +
            "); give --device cpu, or check why some ranks see no GPU");
  }
  if (engine.cuda_graph && group.rank_device().accelerator == nullptr) {
    throw TrainError(ExitCode::kBadInput,
                     "engine.cuda_graph needs a GPU, but the ranks run on CPUs; leave it out");
  }
}

// Returns whether to construct the whole model without memory. Construction would otherwise need
// the most memory of the whole run if a rank keeps only a part of the model. A user's own model may
// not support this, so such a model is constructed without memory at stage 3 only.
bool ConstructsWithoutMemory(const Recipe& recipe) {
  const int64_t stage = recipe.engine.zero.stage;
  return stage == 3 || (stage > 0 && recipe.model.family().Library(recipe.model).empty());
}

// Calls `action`. If `action` fails on one rank, every rank throws. All ranks first exchange their
// results, because rank 0 hosts the ranks' store: if rank 0 left early, the other ranks would wait
// for the store until the timeout. Collective.
void Together(const ProcessGroup& group, const std::function<void()>& action) {
  ThrowFirstFailure(GatherTexts(group, FailureOf(action)));
}

// Makes the model of the run, with adapters if the recipe has any.
std::shared_ptr<Model> MakeRecipeModel(const Recipe& recipe,
                                       const std::vector<int64_t>& input_shape,
                                       const TensorParallel& tensor) {
  std::shared_ptr<Model> model = MakeModel(recipe.model, input_shape, tensor);
  if (recipe.lora) AddAdapters(*model, *recipe.lora);
  return model;
}

// Rounds the weights to the model's dtypes, so that they equal weights that were loaded before the
// model was cast.
void RoundToModel(TrainingModel& training_model) {
  const at::NoGradGuard no_grad;
  std::map<std::string, at::ScalarType> dtypes;
  for (const auto& parameter : training_model.module().named_parameters()) {
    dtypes.emplace(parameter.key(), parameter.value().scalar_type());
  }
  for (const TensorPart& part : training_model.core().ModelState()) {
    const auto dtype = dtypes.find(part.name);
    if (dtype != dtypes.end()) part.tensor.copy_(part.tensor.to(dtype->second));
  }
  training_model.core().WeightsChanged();
}

}  // namespace

ProcessGroupOptions GroupOptions(const RunConfig& run) {
  return {.timeout =
              std::chrono::milliseconds(static_cast<int64_t>(run.collective_timeout_s * 1000))};
}

DeferredModel DeferModel(const Recipe& recipe, const std::vector<int64_t>& input_shape,
                         const TensorParallel& tensor) {
  DeferredModel result;
  result.recording = DeferInit(
      recipe.run.seed, [&] { result.model = MakeRecipeModel(recipe, input_shape, tensor); });
  return result;
}

TensorParallel PartToPlan(const EngineConfig& config) {
  return {.parts = static_cast<int>(config.tensor_parallel.size),
          .sequence_parallel = config.tensor_parallel.sequence_parallel};
}

std::vector<double> LayerCosts(const Recipe& recipe, const at::Tensor& sample, c10::Device device) {
  if (recipe.engine.pipeline.partition == "best") {
    try {
      return LayerFlops(recipe, sample);
    } catch (const TrainError&) {
      // The caller counts parameters if no costs are returned, and training reports errors of the
      // model.
      return {};
    }
  }
  if (recipe.engine.pipeline.partition != "profile") return {};
  std::vector<int64_t> shape = sample.sizes().vec();
  shape[0] = recipe.engine.batch.micro_batch_size;
  const DeferredModel deferred = DeferModel(recipe, ShapeOf(sample));
  return ProfileLayers(deferred.model, deferred.recording, sample.expand(shape).contiguous(),
                       device);
}

std::unique_ptr<TrainingModel> PrepareTrainingModel(const Recipe& recipe, const at::Tensor& sample,
                                                    const ProcessGroup& group,
                                                    const std::function<void(EngineCore&)>& load) {
  if (recipe.run.deterministic) UseDeterministicAlgorithms();
  CheckDevice(recipe.engine, group);
  if (!group.device().is_cpu()) SetTf32(recipe.run.tf32);
  const std::string& weights = recipe.run.init_weights;
  const std::string adapters = recipe.lora ? recipe.lora->init_weights : "";
  const std::vector<int64_t> shape = ShapeOf(sample);
  auto ranks = std::make_shared<MeshGroups>(group, recipe.engine.MeshOf(group.world_size()));
  TensorParallel tensor = PartToPlan(recipe.engine);
  tensor.part = ranks->place().part;
  tensor.group = ranks->tensor();
  std::unique_ptr<TrainingModel> training_model;
  bool has_weights = weights.empty() && adapters.empty();
  if (recipe.engine.pipeline.wanted()) {
    DeferredModel deferred = DeferModel(recipe, shape, tensor);
    training_model =
        MakePipelineTrainingModel(recipe.engine, deferred.model, std::move(deferred.recording),
                                  AgreedCosts(recipe, sample, group), ranks);
  } else if (ConstructsWithoutMemory(recipe)) {
    DeferredModel deferred = DeferModel(recipe, shape, tensor);
    training_model =
        MakeWholeTrainingModel(recipe.engine, deferred.model, ranks, &deferred.recording);
  } else {
    at::manual_seed(recipe.run.seed);
    const std::shared_ptr<Model> model = MakeRecipeModel(recipe, shape, tensor);
    if (!has_weights && !tensor.divides()) {
      Together(group, [&] {
        if (!weights.empty()) InitWeights(*model, recipe.model, weights);
        if (!adapters.empty()) InitAdapters(*model, *recipe.lora, adapters);
      });
      has_weights = true;
    }
    // The weights must be equal on all kinds of devices, so their random numbers are drawn on the
    // CPU. The engine moves the model to the device afterwards.
    training_model = MakeWholeTrainingModel(recipe.engine, model, ranks, nullptr);
  }
  if (!has_weights) {
    // This rank holds only some of the tensors in the files, or parts of them, so names are checked
    // against the whole model.
    const DeferredModel whole = DeferModel(recipe, shape);
    const std::vector<TensorPart> state = training_model->core().ModelState();
    Together(group, [&] {
      if (!weights.empty()) InitWeights(*whole.model, recipe.model, state, weights);
      if (!adapters.empty()) InitAdapters(*whole.model, *recipe.lora, state, adapters);
    });
    RoundToModel(*training_model);
  }
  if (load) load(training_model->core());
  return training_model;
}

ModelSizes SizesOf(const torch::nn::Module& model) {
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
