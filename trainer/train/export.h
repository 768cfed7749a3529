// The weights of a run for other programs.
#pragma once

#include <string>

#include "dslaunch/model.h"
#include "dslaunch/process_group.h"
#include "trainer/config/recipe.h"
#include "trainer/train/training_model.h"

namespace dslaunch {

// Rank 0 writes them in Hugging Face's layout into `folder`. Collective: where weights are sharded,
// one tensor at a time is made whole, on every rank.
// `whole_model` gives names and shapes; it may be without memory.
void ExportWeights(const TrainingModel& training_model, const Model& whole_model,
                   const ProcessGroup& group, const ModelConfig& config, const std::string& folder);

}  // namespace dslaunch
