// What every mode of a run begins with: the model at the state it starts from, on all ranks.
#pragma once

#include <vector>

#include "dslaunch/deferred_init.h"
#include "dslaunch/model.h"
#include "dslaunch/process_group.h"
#include "trainer/checkpoint/checkpointer.h"
#include "trainer/config/recipe.h"
#include "trainer/program/memory_plan.h"
#include "trainer/program/trainee.h"

namespace dslaunch {

struct DeferredModel {
  std::shared_ptr<Model> model;
  InitRecording recording;
};

// The model without its weights. `input_shape` is that of a sample.
DeferredModel DeferModel(const Recipe& recipe, const std::vector<int64_t>& input_shape);

// Collective. Draws the initial weights, or takes those of run.init_weights, or of a checkpoint
// that was chosen. At ZeRO stage 3 no rank ever holds the whole model.
std::unique_ptr<Trainee> PrepareTrainee(const Recipe& recipe,
                                        const std::vector<int64_t>& input_shape,
                                        const ProcessGroup& group,
                                        const Checkpointer* checkpointer);

ModelSizes SizesOf(const Model& model);

}  // namespace dslaunch
