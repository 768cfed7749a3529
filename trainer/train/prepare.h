// Prepares a run in every mode: connects the ranks and makes the model in its initial state.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <vector>

#include "dslaunch/deferred_init.h"
#include "dslaunch/engine.h"
#include "dslaunch/model.h"
#include "dslaunch/process_group.h"
#include "trainer/config/recipe.h"
#include "trainer/nn/tensor_parallel/tensor_parallel.h"
#include "trainer/train/memory_plan.h"
#include "trainer/train/training_model.h"

namespace dslaunch {

// Returns the options of the run's process group.
ProcessGroupOptions GroupOptions(const RunConfig& run);

struct DeferredModel {
  std::shared_ptr<Model> model;
  InitRecording recording;
};

// Makes the model, or the part of it that `tensor` describes, without its weights. `input_shape` is
// the shape of one sample's input, without the batch dimension.
DeferredModel DeferModel(const Recipe& recipe, const std::vector<int64_t>& input_shape,
                         const TensorParallel& tensor = {});

// Returns the tensor parallelism of the first part of each divided layer, for plans. Not
// collective.
TensorParallel PartToPlan(const EngineConfig& config);

// Returns the costs of the model's layers, by which a pipeline is divided: seconds measured by this
// rank (partition "profile"), or numbers of operations (partition "best"), which are the same on
// all ranks. Empty for other partitions, and if the operations cannot be computed. `sample` is one
// sample, [1, ...].
std::vector<double> LayerCosts(const Recipe& recipe, const at::Tensor& sample,
                               c10::Device device = c10::kCPU);

// Makes the run's model with its initial weights, which are drawn or read from run.init_weights.
// Then calls `load`, unless it is null, to load a checkpoint. Collective. At ZeRO stage 3, in a
// pipeline and with tensor parallelism, no rank ever holds the whole model. `sample` is one sample,
// [1, ...], with any values.
std::unique_ptr<TrainingModel> PrepareTrainingModel(const Recipe& recipe, const at::Tensor& sample,
                                                    const ProcessGroup& group,
                                                    const std::function<void(EngineCore&)>& load);

ModelSizes SizesOf(const torch::nn::Module& model);

}  // namespace dslaunch
