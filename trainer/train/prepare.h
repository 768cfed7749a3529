// What every mode of a run begins with: the model at the state it starts from, on all ranks.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "dslaunch/deferred_init.h"
#include "dslaunch/model.h"
#include "dslaunch/process_group.h"
#include "trainer/checkpoint/checkpointer.h"
#include "trainer/config/recipe.h"
#include "trainer/train/memory_plan.h"
#include "trainer/train/training_model.h"

namespace dslaunch {

// How the ranks of a run meet.
ProcessGroupOptions GroupOptions(const RunConfig& run);

struct DeferredModel {
  std::shared_ptr<Model> model;
  InitRecording recording;
};

// The model without its weights. `input_shape` is that of a sample.
DeferredModel DeferModel(const Recipe& recipe, const std::vector<int64_t>& input_shape);

// What a pipeline is to be cut by: of each of the model's layers seconds measured by this rank
// (partition "profile"), or operations ("best"), which are the same everywhere; else nothing, nor
// for a model whose operations cannot be computed. `sample` is [1, ...].
std::vector<double> LayerCosts(const Recipe& recipe, const at::Tensor& sample,
                               c10::Device device = c10::kCPU);

// Collective. Draws the initial weights, or takes those of run.init_weights, or of a checkpoint
// that was chosen. At ZeRO stage 3 and in a pipeline no rank ever holds the whole model. `sample`
// is [1, ...], of any values.
std::unique_ptr<TrainingModel> PrepareTrainingModel(const Recipe& recipe, const at::Tensor& sample,
                                                    const ProcessGroup& group,
                                                    Checkpointer* checkpointer);

ModelSizes SizesOf(const torch::nn::Module& model);

}  // namespace dslaunch
