// The micro-batches of a training run on this rank.
#pragma once

#include "trainer/config/recipe.h"
#include "trainer/data/loader.h"
#include "trainer/train/schedule.h"
#include "trainer/train/training_model.h"

namespace dslaunch {

// From where `schedule` begins to its last step. `data` must outlive the result.
BatchLoader TrainBatches(const Recipe& recipe, const Dataset& data,
                         const TrainingModel& training_model, const Schedule& schedule);

}  // namespace dslaunch
