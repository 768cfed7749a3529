// What every mode of a run begins with: the model at the state it starts from, on all ranks.
#pragma once

#include <vector>

#include "dslaunch/engine.h"
#include "dslaunch/model.h"
#include "dslaunch/process_group.h"
#include "trainer/checkpoint/checkpointer.h"
#include "trainer/config/recipe.h"
#include "trainer/program/memory_plan.h"

namespace dslaunch {

// Draws the initial weights, or takes those of run.init_weights.
std::shared_ptr<Model> PrepareModel(const Recipe& recipe, const std::vector<int64_t>& input_shape);

// Collective. `input_shape` is that of a sample. A checkpoint that was chosen takes the place of
// the initial weights.
Engine<Model> PrepareEngine(const Recipe& recipe, const std::vector<int64_t>& input_shape,
                            const ProcessGroup& group, const Checkpointer* checkpointer);

ModelSizes SizesOf(const Model& model);

}  // namespace dslaunch
