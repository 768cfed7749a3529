// Exports a run's weights for other programs.
#pragma once

#include <string>

#include "dslaunch/model.h"
#include "dslaunch/process_group.h"
#include "trainer/config/recipe.h"
#include "trainer/train/training_model.h"

namespace dslaunch {

// Writes the weights in Hugging Face's layout into `folder`, on rank 0. For a run with `lora`,
// writes only the adapters, in PEFT's layout. Collective: sharded weights are gathered one tensor
// at a time, on every rank. `whole_model` gives names and shapes; its tensors need no allocated
// memory.
void ExportWeights(const TrainingModel& training_model, const Model& whole_model,
                   const ProcessGroup& group, const Recipe& recipe, const std::string& folder);

}  // namespace dslaunch
